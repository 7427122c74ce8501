//! Calls whose sub-agent was suspended, and how they continue.

use crate::error::Error;
use crate::event::ToolEvent;
use crate::item::{History, PendingCall, ToolCall};
use crate::tool::ToolRun;
use crate::tool::begin::Candidate;

/// What a sub-agent leaves when it ends without a result, since calls of its own wait for a verdict or a
/// result from outside. Only tools made by [`Agent::as_tool`](crate::Agent::as_tool) make one.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspension {
    pub(crate) pending: Vec<PendingCall>,
    pub(crate) nested: History,
}

/// A call that stays open since its sub-agent was suspended.
#[derive(Debug)]
pub(super) struct Suspended {
    /// Its place among the calls of the turn.
    pub(super) at: usize,
    call_id: String,
    suspension: Suspension,
}

impl Suspended {
    pub(super) fn new(at: usize, call_id: &str, suspension: Suspension) -> Self {
        Self { at, call_id: call_id.to_owned(), suspension }
    }

    /// The calls that it waits for.
    pub(super) fn pending(&self) -> impl Iterator<Item = PendingCall> {
        let calls = self.suspension.pending.iter().cloned();
        calls.map(|call| call.nested_in(&self.call_id))
    }

    /// Keeps what its sub-agent did beside the call.
    pub(super) fn write(self, history: &mut History) {
        history.set_nested(&self.call_id, self.suspension.nested);
    }
}

impl ToolRun {
    /// The call as a candidate, if it continues a sub-agent that was suspended: neither rules nor
    /// limits are asked about it again.
    ///
    /// # Errors
    ///
    /// What the gate ends the run with.
    pub(super) fn continued(&self, at: usize, call: &ToolCall) -> Result<Option<Candidate>, Error> {
        let was_suspended = self.history.nested(&call.call_id).is_some();
        if !self.resumed || self.refusal.is_some() || !was_suspended {
            return Ok(None);
        }
        let Some(tool) = self.kit.get(&call.name).cloned() else { return Ok(None) };
        // Without a run above it, a sub-agent begins anew, and is admitted like any other call.
        let has_run = self.extension()?.is_some();
        let prepared = tool.continued().filter(|_| has_run);
        let call = || call.clone();
        Ok(prepared.map(|prepared| Candidate { at, call: call(), tool, prepared, continues: true }))
    }

    /// Leaves a call open.
    pub(super) fn suspend(&mut self, at: usize, call: &ToolCall, it: Suspension) -> ToolEvent {
        let event = ToolEvent::Suspended {
            call_id: call.call_id.clone(),
            name: call.name.clone(),
            pending: it.pending.clone(),
            nested: Box::new(it.nested.clone()),
        };
        self.suspended.push(Suspended::new(at, &call.call_id, it));
        event
    }
}
