//! Reads a single run.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::stream::{BoxStream, Stream, StreamExt};

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::hub::log::event_log::{LogContent, LogEntry};
use crate::hub::run::registry::HubRun;
use crate::hub::{EventNumber, Snapshot};

/// An item that a [`Reader`] or a [`SessionReader`](crate::hub::SessionReader) yields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HubEvent {
    /// The current state, which replaces everything that the reader has already yielded for this
    /// run.
    Snapshot {
        /// The event number after which a new reader should continue. `None` if the session has no
        /// active run, or if the number is unknown because the log is unavailable.
        number: Option<EventNumber>,
        /// The state of the run or the session so far.
        snapshot: Arc<Snapshot>,
    },
    /// An event from the run.
    Event {
        /// The number of the event.
        number: EventNumber,
        /// The event itself.
        event: Arc<Event>,
    },
    /// The run's event stream has ended.
    Ended {
        /// The number of the log entry that ends the run.
        number: EventNumber,
        /// The error with which the stream ended, if any: either the error of a failed run, or the
        /// error that stopped the run before its [`Finished`](Event::Finished) event.
        error: Option<Error>,
    },
}

impl HubEvent {
    /// Returns the event number after which a new reader should continue, if the number is known.
    pub fn number(&self) -> Option<&EventNumber> {
        match self {
            Self::Snapshot { number, .. } => number.as_ref(),
            Self::Event { number, .. } | Self::Ended { number, .. } => Some(number),
        }
    }
}

impl From<LogEntry> for HubEvent {
    fn from(LogEntry { number, content }: LogEntry) -> Self {
        match content {
            LogContent::Event(event) => Self::Event { number, event },
            LogContent::Snapshot(snapshot) => Self::Snapshot { number: Some(number), snapshot },
            LogContent::End(error) => Self::Ended { number, error },
        }
    }
}

/// Reads a single run until the run ends.
///
/// The reader ends with [`HubEvent::Ended`], or with one of these errors if the reader cannot
/// continue:
///
/// - [`TooSlow`](crate::hub::TooSlow) if the reader did not keep up;
/// - [`RunLost`](crate::hub::RunLost) if the run's process has died;
/// - [`LogUnavailable`](crate::hub::LogUnavailable) if the log currently cannot be reached;
/// - another error if the run was dropped.
///
/// Dropping the reader stops reading; the run continues.
#[must_use = "streams do nothing unless polled"]
pub struct Reader {
    run: Arc<str>,
    entries: BoxStream<'static, Result<LogEntry, Error>>,
    /// The shared state of the run in which this reader is registered, and the reader's id there.
    /// `None` if the run belongs to another hub.
    hub_run: Option<(Arc<HubRun>, u64)>,
}

impl Reader {
    pub(in crate::hub) fn new(
        run: Arc<str>,
        entries: BoxStream<'static, Result<LogEntry, Error>>,
        hub_run: Option<Arc<HubRun>>,
    ) -> Self {
        let hub_run = hub_run.map(|hub_run| {
            let id = hub_run.add_reader();
            (hub_run, id)
        });
        Self { run, entries, hub_run }
    }

    /// Returns the id of the run that is read, even after it has ended.
    pub fn run_id(&self) -> &str {
        &self.run
    }

    /// Returns the run's position in the order in which the hub's runs were started; see
    /// [`HubRun::order`].
    pub(in crate::hub) fn order(&self) -> u64 {
        self.hub_run.as_ref().map_or(0, |(hub_run, _)| hub_run.order())
    }

    /// Converts the reader to a plain event stream, for code that expects a run's events. The
    /// events in the first snapshot are included. To get the whole run, create the reader without
    /// an event number. The stream contains no deltas of turns that were already complete when the
    /// reader was created.
    ///
    /// Dropping the returned stream drops the reader; the run continues.
    ///
    /// # Errors
    ///
    /// If the run failed, its error is the last item, as with a [`Run`](crate::Run). If the reader
    /// cannot continue, the [reader's error](Self) is the last item. A second snapshot becomes a
    /// [`Conflict`](ErrorKind::Conflict) error, because it means that another attempt at the run
    /// has started and that the events yielded so far are no longer valid.
    pub fn into_events(self) -> impl Stream<Item = Result<Event, Error>> + Send {
        let mut is_first = true;
        self.flat_map(move |read| {
            let is_first = std::mem::replace(&mut is_first, false);
            let events: Vec<Result<Event, Error>> = match read {
                Ok(HubEvent::Event { event, .. }) => vec![Ok(Event::clone(&event))],
                Ok(HubEvent::Snapshot { snapshot, .. }) if is_first => {
                    snapshot.events().iter().map(|event| Ok(Event::clone(event))).collect()
                }
                Ok(HubEvent::Snapshot { .. }) => {
                    let message = "another attempt at the run has begun";
                    vec![Err(Error::new(ErrorKind::Conflict, message))]
                }
                Ok(HubEvent::Ended { error, .. }) => error.into_iter().map(Err).collect(),
                Err(error) => vec![Err(error)],
            };
            futures::stream::iter(events)
        })
    }
}

impl Stream for Reader {
    type Item = Result<HubEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let entry = ready!(self.entries.poll_next_unpin(cx));
        Poll::Ready(entry.map(|entry| entry.map(HubEvent::from)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some((hub_run, id)) = &self.hub_run {
            hub_run.remove_reader(*id);
        }
    }
}

impl_debug!(Reader(it), run = it.run);
