//! Reads a session across its runs in all hubs that share a log.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_stream::stream;
use futures::stream::{BoxStream, StreamExt};
use tokio::time::Instant;

use crate::env::Deadline;
use crate::error::Error;
use crate::hub::log::event_log::{LogUnavailable, NotRunning, RunLost, TooSlow};
use crate::hub::log::logs::Logs;
use crate::hub::read::reader::HubEvent;
use crate::hub::run::run_directory::{AnnouncedRun, RunDirectory};
use crate::hub::{EventNumber, Snapshot};
use crate::session::Session;

/// The time between two attempts to reach the log.
const RETRY: Duration = Duration::from_millis(250);

/// The time between two checks of the store while the log is unavailable.
const STORE_CHECK: Duration = Duration::from_secs(1);

/// The next action that a reader takes.
enum Step {
    /// Looks for an active run of the session.
    Attach,
    Read {
        run: String,
        order: u64,
    },
    /// Yields the session's state from the store. The state includes all runs up to the run with
    /// the order number `seen`.
    Load {
        seen: u64,
    },
    Wait {
        seen: u64,
    },
}

impl Step {
    /// Creates the step that reads the next run, or, if earlier runs were missed, the step that
    /// loads the session.
    fn after_wait(next: AnnouncedRun, seen: u64) -> Self {
        match next.order == seen || next.previous == seen {
            true => Self::Read { run: next.run, order: next.order },
            false => Self::Load { seen: next.previous },
        }
    }
}

/// Returns whether a run's log is gone, so that the run's data is only in the store. If a run in
/// this hub was dropped, this function returns `false`, and the run's readers receive an error. If
/// a run in another hub was dropped, this function returns `true`, because any machine may continue
/// the run.
fn is_gone(error: &Error, is_own: bool) -> bool {
    let is_lost =
        error.find_source::<NotRunning>().is_some() || error.find_source::<RunLost>().is_some();
    let is_dropped =
        error.find_source::<TooSlow>().is_none() && error.find_source::<LogUnavailable>().is_none();
    is_lost || (is_dropped && !is_own)
}

/// Reads a session across all of its runs in all hubs.
pub(in crate::hub) fn read_all_hubs(
    logs: Logs,
    directory: Arc<dyn RunDirectory>,
    session: Session,
    after: Option<EventNumber>,
) -> BoxStream<'static, Result<HubEvent, Error>> {
    let mut hub = ThisHub { logs, key: session.id().to_owned(), waiter: None };
    let mut outage = Outage::new(directory.settle_time());
    let mut after = after;
    let events = stream! {
        let mut step = Step::Attach;
        loop {
            let failed = match step {
                Step::Attach => {
                    let last = directory.last(session.id());
                    match hub.until_closed(last).await {
                        Ok(Some(last)) if last.is_active || is_of(after.as_ref(), &last.run) => {
                            step = Step::Read { run: last.run, order: last.order };
                            continue;
                        }
                        // After an outage of the directory, active runs are soon announced again.
                        Ok(_) if outage.is_settling() => None,
                        Ok(last) => {
                            step = Step::Load { seen: last.map_or(0, |last| last.order) };
                            continue;
                        }
                        Err(error) => Some(error),
                    }
                }
                Step::Read { run, order } => {
                    let is_own = hub.runs(&run);
                    let number = after.take().filter(|number| number.run() == run);
                    let mut reader = hub.logs.read_any_run(&run, number.as_ref());
                    after = number;
                    let failed = loop {
                        let next = async { reader.next().await.transpose() };
                        let read = match is_own {
                            true => next.await,
                            false => hub.until_closed(next).await,
                        };
                        match read {
                            Ok(Some(event)) => {
                                after = event.number().cloned();
                                outage.end();
                                yield Ok(event);
                            }
                            Ok(None) => break None,
                            Err(error) => break Some(error),
                        }
                    };
                    let Some(error) = failed else {
                        step = Step::Wait { seen: order };
                        continue;
                    };
                    let is_gone = is_gone(&error, is_own || hub.is_closed());
                    if is_gone && !outage.is_settling() {
                        step = Step::Load { seen: order };
                        continue;
                    }
                    if is_gone { None } else { Some(error) }
                }
                Step::Load { seen } => {
                    let snapshot = load(&session).await;
                    let is_loaded = snapshot.is_ok();
                    yield snapshot;
                    if !is_loaded {
                        return;
                    }
                    after = None;
                    outage.end();
                    step = Step::Wait { seen };
                    continue;
                }
                Step::Wait { seen } => {
                    let next = directory.next(session.id(), seen);
                    match hub.until_closed(next).await {
                        Ok(next) => {
                            step = Step::after_wait(next, seen);
                            continue;
                        }
                        Err(error) => Some(error),
                    }
                }
            };
            // The run's log currently cannot be read, or is not complete yet.
            if let Some(error) = failed {
                if error.find_source::<LogUnavailable>().is_none() {
                    yield Err(error);
                    return;
                }
                outage.begin();
            }
            step = Step::Attach;
            let check = outage.next_check(&session);
            match hub.until_closed(check).await {
                Ok(Some(snapshot)) => {
                    after = None;
                    yield Ok(snapshot);
                }
                Ok(None) => {}
                Err(error) => {
                    yield Err(error);
                    return;
                }
            }
        }
    };
    events.boxed()
}

fn is_of(number: Option<&EventNumber>, run: &str) -> bool {
    number.is_some_and(|number| number.run() == run)
}

async fn load(session: &Session) -> Result<HubEvent, Error> {
    session.reload().await?;
    Ok(HubEvent::Snapshot { number: None, snapshot: Arc::new(Snapshot::of_session(session)) })
}

/// The hub to which the reader belongs.
struct ThisHub {
    logs: Logs,
    key: String,
    waiter: Option<u64>,
}

impl ThisHub {
    /// Returns whether the run belongs to this hub and is still active.
    fn runs(&self, run: &str) -> bool {
        self.logs.registry().run(run).is_some_and(|hub_run| !hub_run.has_ended())
    }

    /// Waits for the future to complete, but returns early if the hub is closed.
    async fn until_closed<T>(
        &mut self,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut future = pin!(future);
        let (registry, waiter) = (self.logs.registry(), &mut self.waiter);
        poll_fn(|cx| match registry.poll_closed(&self.key, waiter, cx) {
            Poll::Ready(closed) => Poll::Ready(Err(closed)),
            Poll::Pending => future.as_mut().poll(cx),
        })
        .await
    }

    fn is_closed(&self) -> bool {
        self.logs.registry().is_closed()
    }
}

impl Drop for ThisHub {
    fn drop(&mut self) {
        self.logs.registry().stop_waiting(&self.key, self.waiter);
    }
}

/// A period during which the log cannot be read, or active runs may be missing from the directory.
struct Outage {
    settle_time: Duration,
    /// The instant until which active runs may be missing from the directory.
    settled_at: Option<Instant>,
    /// The time of the next check of the store. During an outage, `None` means that the reader has
    /// not yielded anything yet and the check is due immediately.
    check_at: Option<Instant>,
    has_shown_events: bool,
    /// The version of the session in the last snapshot that was yielded during the outage.
    shown: Option<u64>,
}

impl Outage {
    fn new(settle_time: Duration) -> Self {
        Self { settle_time, settled_at: None, check_at: None, has_shown_events: false, shown: None }
    }

    /// Records that the log is currently unavailable.
    fn begin(&mut self) {
        let now = Instant::now();
        self.settled_at = now.checked_add(self.settle_time);
        if self.check_at.is_none() && self.has_shown_events {
            self.check_at = Some(now + STORE_CHECK);
        }
    }

    /// Ends the outage, because the reader is yielding the current state again.
    fn end(&mut self) {
        (self.settled_at, self.check_at, self.shown) = (None, None, None);
        self.has_shown_events = true;
    }

    fn is_settling(&self) -> bool {
        self.settled_at.is_some_and(|at| Instant::now() < at)
    }

    /// Returns a snapshot of the session if a check is due and the session has grown. Otherwise,
    /// waits until the next check may be due.
    async fn next_check(&mut self, session: &Session) -> Result<Option<HubEvent>, Error> {
        let is_due = |at: Instant| at <= Instant::now();
        if self.check_at.is_none_or(is_due) {
            self.check_at = Some(Instant::now() + STORE_CHECK);
            let snapshot = load(session).await?;
            if self.shown != Some(session.version()) {
                self.shown = Some(session.version());
                return Ok(Some(snapshot));
            }
        }
        if let Some(mut deadline) = Deadline::try_start(RETRY) {
            poll_fn(|cx| deadline.poll(cx)).await;
        }
        Ok(None)
    }
}
