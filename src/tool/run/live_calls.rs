//! Runs a turn's calls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::error::Error;
use crate::event::ToolEvent;
use crate::item::{ToolCall, ToolResult};
use crate::tool::run::admission::{Admission, AdmissionStep};
use crate::tool::run::call_executor::CallExecutor;
use crate::tool::run::call_journal::{AdmittedCall, CallJournal};
use crate::tool::run::result_collector::{CallsEnd, ResultCollector};
use crate::tool::run::running_call::CallUpdate;
use crate::tool::run::saved_calls::SaveCallback;
use crate::tool::run::turn_calls::{AnsweredCall, CallPermission, Refusal, TurnCalls};

/// Runs a turn's calls: admits each call, and then executes it.
pub(super) struct LiveCalls {
    /// Decides which calls are allowed to run.
    admission: Admission,
    /// Runs the calls that are allowed to run.
    executor: CallExecutor,
    /// The callback that receives the saved calls once all calls have ended.
    save_callback: Option<Box<SaveCallback>>,
    /// The event of a result that is known, but whose event must follow another event.
    next_event: Option<ToolEvent>,
    /// The callback that receives the results in `next_event`.
    known_result_callback: Option<KnownResultCallback>,
}

/// A function that receives a result that is known before its event is emitted.
type KnownResultCallback = Box<dyn FnMut(&ToolResult) + Send>;

impl LiveCalls {
    pub(super) fn new(queue: VecDeque<(usize, ToolCall)>, max_concurrency: usize) -> Self {
        let (admission, executor) = (Admission::new(queue), CallExecutor::new(max_concurrency));
        Self {
            admission,
            executor,
            save_callback: None,
            next_event: None,
            known_result_callback: None,
        }
    }

    pub(super) fn set_call_limit(&mut self, left: u32, refusal: Refusal) {
        self.admission.set_call_limit(left, refusal);
    }

    pub(super) fn set_save_callback(&mut self, callback: SaveCallback) {
        self.save_callback = Some(Box::new(callback));
    }

    pub(super) fn set_known_result_callback(
        &mut self,
        callback: impl FnMut(&ToolResult) + Send + 'static,
    ) {
        self.known_result_callback = Some(Box::new(callback));
    }

    /// Returns whether a result is known, but its event has not been emitted yet.
    #[cfg(test)]
    pub(super) fn has_next_event(&self) -> bool {
        self.next_event.is_some()
    }

    /// Lets a journal decide when calls start.
    pub(super) fn set_journal(&mut self, journal: &Arc<dyn CallJournal>) {
        self.executor.set_journal(Arc::clone(journal));
    }

    /// Sets the calls that an earlier attempt has already admitted.
    pub(super) fn set_admitted(&mut self, admitted: Vec<AdmittedCall>) {
        self.admission.set_admitted(admitted);
    }

    /// Returns whether the policy is deciding on a call.
    pub(super) fn is_asking(&self) -> bool {
        self.admission.is_asking()
    }

    pub(super) fn end(&self, results: &ResultCollector) -> CallsEnd {
        CallsEnd {
            pending: results.pending(self.admission.awaiting_verdict()),
            calls_over_limit: self.admission.over_limit_count(),
        }
    }

    pub(super) fn poll_event(
        &mut self,
        calls: &mut TurnCalls,
        results: &mut ResultCollector,
        cx: &mut Context<'_>,
    ) -> Poll<Option<ToolEvent>> {
        self.executor.resume_timeouts();
        let polled = match (self.next_event.take(), results.error()) {
            (Some(event), _) => Poll::Ready(Some(event)),
            // The previous poll already returned the event that arrived together with the error.
            (None, Some(_)) => Poll::Ready(None),
            (None, None) => self.try_poll(calls, results, cx).unwrap_or_else(|error| {
                results.set_error(Err(error));
                Poll::Ready(None)
            }),
        };
        let mut event = ready!(polled);
        self.executor.pause_timeouts();
        if results.error().is_some() {
            // All calls are dropped, including running calls. The results of calls that were
            // executed elsewhere follow.
            self.admission.clear();
            self.executor.clear();
            if event.is_none() {
                let executed = self.executor.next_executed(cx);
                event = executed.map(|ended| results.emit_result(calls, *ended));
            }
        }
        match (&event, &mut self.save_callback) {
            (_, None) => {}
            (Some(event), Some(callback)) => callback.observe(event),
            (None, callback) => {
                if let Some(callback) = callback.take() {
                    callback.finish(self.end(results), results.error().cloned());
                }
            }
        }
        Poll::Ready(event)
    }

    fn try_poll(
        &mut self,
        calls: &mut TurnCalls,
        results: &mut ResultCollector,
        cx: &mut Context<'_>,
    ) -> Result<Poll<Option<ToolEvent>>, Error> {
        if let Some(grant_id) = calls.policy.call_policy(|policy| policy.take_revoked_grant())? {
            return Ok(Poll::Ready(Some(ToolEvent::GrantRevoked { grant_id })));
        }
        for step in self.admission.take_verdicts(calls)? {
            if let Some(event) = self.handle_admission(calls, results, step) {
                return Ok(Poll::Ready(Some(event)));
            }
        }
        loop {
            // Only one call is started in each poll, so that no tool runs before its `Started`
            // event is emitted.
            if let Some(event) = self.start_next(calls, results, cx)? {
                return Ok(Poll::Ready(Some(event)));
            }
            let slots = self.executor.free_slots();
            match self.admission.next(calls, slots, cx)? {
                AdmissionStep::Idle => break,
                admitted => {
                    if let Some(event) = self.handle_admission(calls, results, admitted) {
                        return Ok(Poll::Ready(Some(event)));
                    }
                }
            }
        }
        Ok(match self.executor.poll(cx) {
            Poll::Ready(Some(update)) => {
                Poll::Ready(Some(self.emit_update(calls, results, update)))
            }
            Poll::Pending => Poll::Pending,
            // An admitted call that has not started yet is waiting for a slot.
            Poll::Ready(None) if self.executor.free_slots().is_none() => Poll::Pending,
            Poll::Ready(None) if self.admission.must_wait(calls)? => Poll::Pending,
            Poll::Ready(None) if self.admission.release_deferred() => {
                return self.try_poll(calls, results, cx);
            }
            Poll::Ready(None) => Poll::Ready(None),
        })
    }

    /// Processes an admission step and returns the event to emit, if any.
    fn handle_admission(
        &mut self,
        calls: &mut TurnCalls,
        results: &mut ResultCollector,
        admitted: AdmissionStep,
    ) -> Option<ToolEvent> {
        match admitted {
            AdmissionStep::Allowed(ready_call) => {
                let added = match &ready_call.permission {
                    CallPermission::NewGrant(grant) => {
                        let call_id = ready_call.call.call_id.clone();
                        Some(ToolEvent::GrantAdded { call_id, grant: grant.clone() })
                    }
                    CallPermission::Unconditional
                    | CallPermission::Grant(_)
                    | CallPermission::Earlier { .. } => None,
                };
                self.executor.enqueue(ready_call);
                if added.is_some() {
                    self.admission.recheck_grants();
                }
                added
            }
            AdmissionStep::Answered(ended) => Some(results.emit_result(calls, ended)),
            AdmissionStep::VerdictRequested(event) => Some(event),
            AdmissionStep::Progressed | AdmissionStep::Idle => None,
        }
    }

    /// Looks up the grant of the next call to start again, because it may have been revoked since
    /// the call was admitted. Without a grant, the call needs an approval: returns the request.
    fn recheck_next(&mut self, calls: &mut TurnCalls) -> Result<Option<ToolEvent>, Error> {
        let Some(next) = self.executor.peek_next() else { return Ok(None) };
        let CallPermission::Grant(known) = &next.permission else { return Ok(None) };
        let request = next.to_request();
        match calls.policy.call_policy(|policy| policy.find_grant(&request))? {
            Some(found) if *found == **known => Ok(None),
            Some(found) => {
                self.executor.set_permission_of_next(CallPermission::Grant(found.into()));
                Ok(None)
            }
            None => match self.executor.take_next() {
                Some(next) => self.admission.request_verdict(calls, next).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Starts the first ready call, if a slot is free for it.
    fn start_next(
        &mut self,
        calls: &mut TurnCalls,
        results: &mut ResultCollector,
        cx: &mut Context<'_>,
    ) -> Result<Option<ToolEvent>, Error> {
        let counts = self
            .executor
            .peek_next()
            .is_some_and(|next| !next.is_resumed && next.tool.counts_as_call());
        if counts && self.admission.is_limit_reached() {
            let refusal = self.admission.refuse_over_limit();
            let Some(next) = self.executor.take_next() else { return Ok(None) };
            let ended = AnsweredCall::from_refusal(next.index, next.call, refusal);
            return Ok(Some(results.emit_result(calls, ended)));
        }
        if let Some(requested) = self.recheck_next(calls)? {
            return Ok(Some(requested));
        }
        let update = self.executor.start_next(calls, cx)?;
        if let Some(CallUpdate::Event(_)) = update
            && counts
        {
            self.admission.count_started();
        }
        Ok(update.map(|update| self.emit_update(calls, results, update)))
    }

    /// Converts an update from a running call into an event, and stores the result or suspension
    /// that it contains.
    fn emit_update(
        &mut self,
        calls: &mut TurnCalls,
        results: &mut ResultCollector,
        update: CallUpdate,
    ) -> ToolEvent {
        match update {
            CallUpdate::Event(event) => event,
            CallUpdate::Progress { call, data } => results.redact_progress(calls, call, data),
            CallUpdate::Answered(ended) => results.emit_result(calls, *ended),
            CallUpdate::SubAgentEnded { event, answered } => {
                let output = results.emit_result(calls, *answered);
                if let (ToolEvent::Output(result), Some(callback)) =
                    (&output, &mut self.known_result_callback)
                {
                    callback(result);
                }
                self.next_event = Some(output);
                event
            }
            CallUpdate::Suspended { call_index, call, suspension } => {
                results.emit_suspended(call_index, call, *suspension)
            }
        }
    }
}
