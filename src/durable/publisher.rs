//! Publishes an attempt's events.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use futures::future::{BoxFuture, FutureExt, join_all};

use crate::agent::RunHandle;
use crate::durable::engine::{AttemptLost, ToolCallRequest};
use crate::env::Deadline;
use crate::error::Error;
use crate::event::{Event, ToolEvent};
use crate::hub::{CallProgress, Command, Hub, RunOwner, RunSource};
use crate::item::{History, ToolCall};
use crate::tool::AdmittedCall;

/// Publishes an attempt's new events to a hub and an observer. An event is published only when it
/// can no longer be lost, or when a later event can void it.
///
/// Deltas and progress are published as they arrive, because a later event voids the turn if the
/// attempt is lost. The results of calls are published once they have been recorded, and the end of
/// the run is published once everything else is done.
pub(super) struct Publisher {
    hub: Option<HubTarget>,
    observer: Option<EventObserver>,
    /// The events that precede the first effect performed by this attempt. Earlier attempts may
    /// have published these events.
    replayed: Option<Vec<Event>>,
    /// Events that can be published now.
    ready: VecDeque<Event>,
    /// Results that have not been recorded yet, and the events that follow them.
    held: VecDeque<Event>,
    /// The `Finished` event and all later events.
    last: VecDeque<Event>,
    /// The ids of the calls whose start events have been queued since results were last released.
    started: Vec<String>,
}

/// The maximum number of progress reports from separately executed calls that can be queued for the
/// hub. Further reports are dropped.
const MAX_WAITING_PROGRESS: usize = 256;

/// The delay before calls that are executed separately are interrupted again.
const INTERRUPT_INTERVAL: Duration = Duration::from_secs(1);

pub(super) type EventObserver = Box<dyn FnMut(&Event) + Send>;

/// The run's connection to a hub. At most one of the run's events is in flight to the hub's log at
/// any time.
struct HubTarget {
    hub: Hub,
    key: String,
    run_id: String,
    starting: Option<BoxFuture<'static, Result<RunOwner, Error>>>,
    sender: Option<mpsc::Sender<Result<Event, Error>>>,
    /// The receiver for progress from calls that are executed separately from the run.
    progress: Option<mpsc::Receiver<CallProgress>>,
    /// The owner of the run in the hub. Dropping it removes the run from the hub.
    owner: Option<RunOwner>,
}

/// Describes the start of a run.
pub(super) struct RunBegin {
    pub(super) history: History,
    pub(super) version: u64,
    pub(super) handle: RunHandle,
}

impl Publisher {
    /// Creates a publisher that sends events to a hub, under the run's key and id, and to an
    /// observer.
    pub(super) fn new(hub: Option<(Hub, String, String)>, observer: Option<EventObserver>) -> Self {
        let hub = hub.map(|(hub, key, run_id)| HubTarget {
            hub,
            key,
            run_id,
            starting: None,
            sender: None,
            progress: None,
            owner: None,
        });
        Self {
            hub,
            observer,
            replayed: Some(Vec::new()),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            last: VecDeque::new(),
            started: Vec::new(),
        }
    }

    /// Returns the run's id in the hub.
    pub(super) fn run_id(&self) -> Option<&str> {
        self.hub.as_ref().map(|target| &*target.run_id)
    }

    /// Queues the start events of calls that are now executed separately from the run. If an
    /// earlier attempt recorded the request for these calls, the run itself yields the start events
    /// only when it is polled again, after the calls have ended.
    pub(super) fn push_started(&mut self, calls: &[AdmittedCall]) {
        for AdmittedCall { call, grant_id, .. } in calls.iter().cloned() {
            let ToolCall { call_id, name, arguments } = call;
            self.push(Event::Tool(ToolEvent::Started { call_id, name, arguments, grant_id }));
        }
    }

    /// Interrupts the separately executed calls of a run that was interrupted through the hub. A
    /// call may start later, so the returned future sends the interrupts again and again, until it
    /// is dropped. Returns `None` without a hub.
    pub(super) fn interrupt_calls(
        &self,
        calls: &[ToolCallRequest],
    ) -> Option<BoxFuture<'static, ()>> {
        let hub = self.hub.as_ref()?.hub.clone();
        let addresses: Vec<String> = calls.iter().filter_map(ToolCallRequest::address).collect();
        let interrupt = async move {
            loop {
                // A call that has ended, or that has not started, accepts no command.
                let sent = addresses.iter().map(|call| hub.send(call, Command::Interrupt));
                join_all(sent).await;
                let Some(mut pause) = Deadline::try_start(INTERRUPT_INTERVAL) else {
                    return pending().await;
                };
                poll_fn(|cx| pause.poll(cx)).await;
            }
        };
        Some(interrupt.boxed())
    }

    /// Polls for the next progress report from a call that is executed separately from the run.
    /// Call this method after the hub has accepted all ready events.
    pub(super) fn poll_progress(&mut self, cx: &mut Context<'_>) -> Poll<CallProgress> {
        let progress = self.hub.as_mut().and_then(|target| target.progress.as_mut());
        match progress.map(|progress| progress.poll_next_unpin(cx)) {
            Some(Poll::Ready(Some(progress))) => Poll::Ready(progress),
            Some(Poll::Ready(None) | Poll::Pending) | None => Poll::Pending,
        }
    }

    /// Queues progress from a call that is executed separately from the run.
    pub(super) fn push_progress(&mut self, event: ToolEvent) {
        self.ready.push_back(Event::Tool(event));
    }

    /// Queues the run's next event.
    pub(super) fn push(&mut self, event: Event) {
        match &event {
            Event::Tool(ToolEvent::Started { call_id, .. }) if self.started.contains(call_id) => {
                return;
            }
            Event::Tool(ToolEvent::Started { call_id, .. }) => self.started.push(call_id.clone()),
            _ => {}
        }
        if !self.last.is_empty() || matches!(event, Event::Finished(_)) {
            self.last.push_back(event);
            return;
        }
        if let Some(replayed) = &mut self.replayed {
            replayed.push(event);
            return;
        }
        let is_held = match &event {
            Event::Tool(ToolEvent::Output(_) | ToolEvent::Suspended { .. }) => true,
            // These events belong to other calls, which continue.
            Event::Tool(_) | Event::Nested { .. } => false,
            _ => !self.held.is_empty(),
        };
        match is_held {
            true => self.held.push_back(event),
            false => self.ready.push_back(event),
        }
    }

    /// Starts publishing events, because all further events are new. Does nothing if publishing has
    /// already started.
    pub(super) fn begin(&mut self, begin: &RunBegin) {
        let Some(replayed) = self.replayed.take() else { return };
        let Some(target) = &mut self.hub else {
            self.ready.extend(replayed);
            return;
        };
        let (sender, events) = mpsc::channel(0);
        let (progress_sender, progress) = mpsc::channel(MAX_WAITING_PROGRESS);
        (target.sender, target.progress) = (Some(sender), Some(progress));
        let RunBegin { history, version, handle } = begin;
        if let Some(observer) = &mut self.observer {
            replayed.iter().for_each(observer);
        }
        let source = RunSource::of_attempt(
            &target.run_id,
            history.clone(),
            *version,
            handle.clone(),
            replayed,
            progress_sender,
            events,
        );
        let (hub, key) = (target.hub.clone(), target.key.clone());
        target.starting = Some(async move { hub.start(key, source).await }.boxed());
    }

    /// Releases the held results for publication. Call this method after the results have been
    /// recorded.
    pub(super) fn release(&mut self) {
        self.ready.append(&mut self.held);
        self.started.clear();
    }

    /// Publishes the ready events. Returns `Poll::Pending` until the hub has accepted all ready
    /// events.
    ///
    /// # Errors
    ///
    /// Returns the hub's error, or [`AttemptLost`] if the hub no longer accepts events.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(target) = &mut self.hub else {
            for event in self.ready.drain(..) {
                self.observer.iter_mut().for_each(|observer| observer(&event));
            }
            return Poll::Ready(Ok(()));
        };
        if let Some(starting) = &mut target.starting {
            let owner = ready!(starting.poll_unpin(cx))?;
            (target.owner, target.starting) = (Some(owner), None);
        }
        let Some(sender) = &mut target.sender else { return Poll::Ready(Ok(())) };
        while !self.ready.is_empty() {
            ready!(sender.poll_ready(cx)).map_err(|_| AttemptLost)?;
            let Some(event) = self.ready.pop_front() else { break };
            self.observer.iter_mut().for_each(|observer| observer(&event));
            sender.start_send(Ok(event)).map_err(|_| AttemptLost)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Publishes all remaining events after the run has ended.
    pub(super) async fn finish(&mut self) -> Result<(), Error> {
        self.release();
        self.ready.append(&mut self.last);
        poll_fn(|cx| self.poll_flush(cx)).await?;
        self.detach();
        Ok(())
    }

    /// Reports to readers that the run has ended with an error and that no further attempt will
    /// follow.
    pub(super) async fn fail(&mut self, error: &Error) {
        if self.replayed.is_some() || poll_fn(|cx| self.poll_flush(cx)).await.is_err() {
            return;
        }
        if let Some(HubTarget { sender: Some(sender), .. }) = &mut self.hub
            && let Ok(()) = poll_fn(|cx| sender.poll_ready(cx)).await
        {
            let _ = sender.start_send(Err(error.clone()));
        }
        self.detach();
    }

    /// Gives up the ownership of the run in the hub, which then ends the run after the run's last
    /// event.
    fn detach(&mut self) {
        if let Some(target) = &mut self.hub {
            target.sender = None;
            target.owner.take().map(RunOwner::detach);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use serde_json::json;

    use super::*;
    use crate::agent::Agent;
    use crate::hub::Command;
    use crate::provider::Scripted;

    #[tokio::test]
    async fn a_limited_number_of_progress_reports_waits_for_the_run() {
        let hub = Hub::new();
        let target = (hub.clone(), "key".to_owned(), "r".to_owned());
        let mut publisher = Publisher::new(Some(target), None);
        let handle = Agent::new(Scripted::new(["Done."])).run("Go.").handle();
        publisher.begin(&RunBegin { history: History::empty("h"), version: 0, handle });
        poll_fn(|cx| publisher.poll_flush(cx)).await.unwrap();
        for n in 0..1_000 {
            let progress = Command::ToolProgress { call_id: "c".to_owned(), data: json!(n).into() };
            let _ = hub.send("r", progress).await;
        }
        let mut report_count = 0;
        while block_on(poll_fn(|cx| Poll::Ready(publisher.poll_progress(cx).is_ready()))) {
            report_count += 1;
        }
        // Each sender has one more place than the channel.
        assert!((256..260).contains(&report_count), "{report_count}");
    }
}
