//! The calls that wait for their journal to let them start.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::env::TimeLimit;
use crate::event::ToolEvent;
use crate::item::ToolResult;
use crate::tool::ToolContext;
use crate::tool::run::call_journal::{AdmittedCall, CallJournal};
use crate::tool::run::concurrency_slots::ConcurrencySlots;
use crate::tool::run::policy_handle::HeldSlot;
use crate::tool::run::running_call::{RunningCall, started_event};
use crate::tool::run::turn_calls::{AnsweredCall, CallPermission, ReadyCall};

/// The calls that wait for their journal, and then for a concurrency slot. The journal lets calls
/// start once the run has announced all calls that it can, so an announced call does not occupy a
/// concurrency slot.
pub(super) struct AnnouncedCalls {
    pub(super) journal: Arc<dyn CallJournal>,
    calls: Vec<AnnouncedCall>,
    pub(super) slots: ConcurrencySlots,
}

struct AnnouncedCall {
    ready_call: ReadyCall,
    limit: Option<TimeLimit>,
    context: ToolContext,
    slot: Option<HeldSlot>,
    /// Whether the journal has let the call start.
    may_start: bool,
}

impl AnnouncedCalls {
    pub(super) fn new(journal: Arc<dyn CallJournal>, slots: ConcurrencySlots) -> Self {
        Self { journal, calls: Vec::new(), slots }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Drops all calls except those that were executed elsewhere, whose results are not lost.
    pub(super) fn keep_executed(&mut self) {
        self.calls.retain(|it| self.journal.has_result(&it.ready_call.call.call_id));
    }

    /// Announces a call, and returns its event.
    pub(super) fn announce(
        &mut self,
        ready_call: ReadyCall,
        limit: Option<TimeLimit>,
        context: ToolContext,
        slot: Option<HeldSlot>,
    ) -> ToolEvent {
        self.journal.announce(&admitted_call(&ready_call), &ready_call.tool);
        let started = started_event(&ready_call);
        self.calls.push(AnnouncedCall { ready_call, limit, context, slot, may_start: false });
        started
    }

    /// Returns the next call that starts, or that is answered instead.
    pub(super) fn poll_start(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RunningCall, Box<AnsweredCall>>> {
        for at in 0..self.calls.len() {
            let Some(waiting) = self.calls.get_mut(at) else { break };
            let ReadyCall { call, tool, .. } = &waiting.ready_call;
            if !waiting.may_start {
                match self.journal.poll_start(call, cx) {
                    Poll::Pending => continue,
                    Poll::Ready(None) => waiting.may_start = true,
                    Poll::Ready(Some(result)) => {
                        let AnnouncedCall { ready_call, context, .. } = self.calls.remove(at);
                        context.call_record().mark_cancelled();
                        let ReadyCall { index, call, .. } = ready_call;
                        let (call_id, name) = (call.call_id.clone(), call.name.clone());
                        let result = ToolResult { call_id, name, ..result };
                        return Poll::Ready(Err(Box::new(AnsweredCall { index, call, result })));
                    }
                }
            }
            if self.slots.has_slot_for(Some(tool)) {
                let AnnouncedCall { ready_call, limit, context, slot, .. } = self.calls.remove(at);
                let tool = ready_call.tool.clone();
                let started = RunningCall::start(ready_call, limit, context, slot);
                if started.is_ok() {
                    self.slots.acquire(&tool);
                }
                return Poll::Ready(started);
            }
        }
        Poll::Pending
    }
}

/// Returns the call as the journal stores it.
fn admitted_call(ready_call: &ReadyCall) -> AdmittedCall {
    let grant_id = ready_call.permission.grant_id().map(Into::into);
    let new_grant = match &ready_call.permission {
        CallPermission::NewGrant(grant) => Some(grant.clone()),
        CallPermission::Unconditional
        | CallPermission::Grant(_)
        | CallPermission::Earlier { .. } => None,
    };
    AdmittedCall { call: ready_call.call.clone(), grant_id, new_grant }
}
