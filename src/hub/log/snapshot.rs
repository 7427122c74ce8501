//! A snapshot of a run's state.

use std::sync::Arc;

use crate::event::{Event, ToolEvent};
use crate::hub::log::snapshot_events::{EventList, SnapshotEvents};
use crate::item::{History, PendingCall};
use crate::journal::Journal;
use crate::session::{Session, SessionState};

/// The state of a run so far: the history at the start of the run, and the events since then.
///
/// The events are reduced: complete turns have no deltas, retracted output is left out, and only
/// the last progress event of each tool call is kept. Applying the reduced events gives the same
/// result as applying all events. A new reader first receives the reduced events, and then all
/// subsequent events.
#[derive(Clone, Debug)]
pub struct Snapshot {
    run: Option<Arc<str>>,
    start: History,
    starts_at: Option<u64>,
    events: EventList,
    pending: Vec<PendingCall>,
}

impl Snapshot {
    pub(in crate::hub) fn of_run(
        run: &Arc<str>,
        start: &History,
        starts_at: Option<u64>,
        events: SnapshotEvents,
    ) -> Self {
        let (run, start) = (Some(Arc::clone(run)), start.clone());
        Self { run, start, starts_at, events: events.into(), pending: Vec::new() }
    }

    /// Creates a snapshot from parts that were written by another process.
    pub(in crate::hub) fn from_parts(
        run: Option<Arc<str>>,
        start: History,
        starts_at: Option<u64>,
        events: Vec<Arc<Event>>,
        pending: Vec<PendingCall>,
    ) -> Self {
        Self { run, start, starts_at, events: events.into(), pending }
    }

    /// Returns the calls that were already pending before the snapshot's first event.
    pub(in crate::hub) fn pending_before(&self) -> &[PendingCall] {
        &self.pending
    }

    /// Creates a snapshot of a session that has no active run: the session's history and its
    /// pending calls, without events.
    pub fn of_session(session: &Session) -> Self {
        let pending = match session.state() {
            SessionState::Pending { calls } => calls,
            SessionState::Idle | SessionState::Unfinished { .. } => Vec::new(),
        };
        Self {
            run: None,
            start: session.history(),
            starts_at: Some(session.version()),
            events: EventList::default(),
            pending,
        }
    }

    /// Returns the run's id, or `None` if the session has no active run or if the id is unknown
    /// because the log is unavailable.
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// Returns the history at the start of the run, before the run's input was added to it.
    pub fn start(&self) -> &History {
        &self.start
    }

    /// Returns the number of entries in the session when the run started, or `None` if the run has
    /// no session.
    pub fn starts_at(&self) -> Option<u64> {
        self.starts_at
    }

    /// Returns the events since the start of the run. Applying these events to
    /// [`start`](Self::start) gives the current state.
    pub fn events(&self) -> &[Arc<Event>] {
        self.events.as_slice()
    }

    /// Creates a journal with the current state by applying the snapshot's events to the starting
    /// history.
    pub fn to_journal(&self) -> Journal {
        let journal = Journal::new(self.start.clone());
        for event in self.events() {
            journal.observe(event);
        }
        journal
    }

    /// Returns the calls that are waiting for a verdict, so that a front end can ask for it.
    pub fn pending_calls(&self) -> Vec<PendingCall> {
        let mut pending = self.pending.clone();
        for event in self.events() {
            match &**event {
                Event::Finished(outcome) => pending.clone_from(&outcome.pending),
                event => {
                    if let Some(call) = event.approval_request() {
                        // A request replaces the earlier request for the same call.
                        pending.retain(|earlier| !earlier.is_same_call(&call));
                        pending.push(call);
                    }
                    if settles_calls(event) {
                        pending.retain(|call| !is_settled_by(call, event));
                    }
                }
            }
        }
        pending
    }
}

/// Returns whether any call may no longer wait for a verdict after this event.
fn settles_calls(event: &Event) -> bool {
    matches!(event.without_nesting(), Event::Tool(ToolEvent::Started { .. } | ToolEvent::Output(_)))
}

/// Returns whether the call no longer waits for a verdict after this event.
fn is_settled_by(call: &PendingCall, event: &Event) -> bool {
    let mut path = call.path.iter();
    let mut inner = event;
    while let Event::Nested { call_id, event, .. } = inner {
        if path.next() != Some(call_id) {
            return false;
        }
        inner = event;
    }
    match inner {
        Event::Tool(ToolEvent::Started { call_id, .. }) => {
            path.next().is_none() && *call_id == call.call_id
        }
        // The result of a call also settles all approval requests from the call's sub-agents.
        Event::Tool(ToolEvent::Output(result)) => {
            result.call_id == *path.next().unwrap_or(&call.call_id)
        }
        _ => false,
    }
}
