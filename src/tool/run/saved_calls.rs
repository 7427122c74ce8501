//! Saves the outcome of a turn's calls.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::event::{Event, ToolEvent};
use crate::item::PendingCall;
use crate::tool::run::result_collector::CallsEnd;
use crate::turn::TurnEvent;
use crate::usage::Usage;

/// The saved outcome of a turn's calls: their results, the calls that stay open, and the error that
/// ended the run, if any. Progress is not saved. For sub-agents, only the token usage and the
/// [grants](crate::item::Grant) are saved.
///
/// [`ToolRun::on_complete`](crate::tool::ToolRun::on_complete) passes the saved outcome to a
/// function, and [`ToolRun::with_saved_calls`](crate::tool::ToolRun::with_saved_calls) uses it to
/// answer the same calls again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedCalls {
    pub(super) events: Vec<Event>,
    pub(super) pending: Vec<PendingCall>,
    /// The number of calls that did not run because of a limit on calls.
    pub(super) calls_over_limit: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Error>,
}

impl SavedCalls {
    /// Returns whether the calls have only started and returned their results, without reports.
    pub(crate) fn has_only_results(&self) -> bool {
        let is_simple = |event: &Event| match event {
            Event::Tool(ToolEvent::Started { .. }) => true,
            Event::Tool(ToolEvent::Output(result)) => result.report.is_none(),
            _ => false,
        };
        self.error.is_none() && self.pending.is_empty() && self.events.iter().all(is_simple)
    }
}

/// Collects the outcome of a turn's calls and passes it to a function.
pub(super) struct SaveCallback {
    saved: SavedCalls,
    /// The token usage of the sub-agents, with one entry for each call that runs a sub-agent.
    nested_usage: Vec<NestedUsage>,
    callback: Box<dyn FnOnce(SavedCalls) + Send>,
}

impl SaveCallback {
    pub(super) fn new(callback: impl FnOnce(SavedCalls) + Send + 'static) -> Self {
        let callback = Box::new(callback);
        Self { saved: SavedCalls::default(), nested_usage: Vec::new(), callback }
    }

    /// Adds an event to the collected outcome.
    pub(super) fn observe(&mut self, event: &ToolEvent) {
        if let ToolEvent::Nested { call_id, name, event } = event {
            return self.observe_nested(call_id, name, event);
        }
        if matches!(event, ToolEvent::Progress { .. }) {
            return;
        }
        self.saved.events.push(event.clone().into());
        let has_result = matches!(event, ToolEvent::Output(_));
        if has_result || matches!(event, ToolEvent::Suspended { .. }) {
            let is_it = |nested: &mut NestedUsage| nested.call_id == event.call_id();
            let ended = self.nested_usage.extract_if(.., is_it);
            self.saved.events.extend(ended.map(|nested| nested.into_event(has_result)));
        }
    }

    /// Passes the collected outcome to the function.
    pub(super) fn finish(self, end: CallsEnd, error: Option<Error>) {
        let CallsEnd { pending, calls_over_limit } = end;
        let Self { mut saved, nested_usage, callback } = self;
        // The usage by sub-agents that were dropped is also saved.
        saved.events.extend(nested_usage.into_iter().map(|nested| nested.into_event(false)));
        callback(SavedCalls { pending, calls_over_limit, error, ..saved });
    }

    fn observe_nested(&mut self, call_id: &str, name: &str, event: &Event) {
        if event.grant_change().is_some() {
            let (call_id, name) = (call_id.to_owned(), name.to_owned());
            self.saved.events.push(Event::Nested { call_id, name, event: Box::new(event.clone()) });
        }
        let at = self.nested_usage.iter().position(|nested| nested.call_id == call_id);
        let at = at.unwrap_or_else(|| {
            let (call_id, name) = (call_id.to_owned(), name.to_owned());
            self.nested_usage.push(NestedUsage { call_id, name, usage: Usage::default() });
            self.nested_usage.len() - 1
        });
        let usage = &mut self.nested_usage[at].usage;
        match event {
            Event::Finished(outcome) => *usage = outcome.usage + *outcome.nested_usage,
            event => *usage += event_usage(event),
        }
    }
}

/// Returns the tokens that an event adds to its run's usage, which includes usage by sub-agents.
fn event_usage(event: &Event) -> Usage {
    match event.without_nesting() {
        Event::Turn(TurnEvent::TurnComplete { turn }) => turn.usage(),
        Event::Turn(TurnEvent::Retracted { usage, .. })
        | Event::Rewritten { usage, .. }
        | Event::HelperUsage { usage, .. } => **usage,
        _ => Usage::default(),
    }
}

/// The token usage of one sub-agent.
struct NestedUsage {
    call_id: String,
    name: String,
    usage: Usage,
}

impl NestedUsage {
    /// Creates a single event that stands for all events of an ended sub-agent: folding the event
    /// adds the same usage. If the sub-agent's call has no result, the event contains a different
    /// call id, because folding an event with the call's own id would replace the sub-agent's
    /// history.
    fn into_event(self, has_result: bool) -> Event {
        let Self { mut call_id, name, usage } = self;
        if !has_result {
            call_id.push_str("#usage");
        }
        let event =
            TurnEvent::Retracted { why: "usage of a sub-agent".to_owned(), usage: usage.into() };
        Event::Nested { call_id, name, event: Box::new(event.into()) }
    }
}
