//! Applies hooks, verdicts and pool slots to the calls in a turn before their tools run.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{self, BoxFuture};

use crate::agent::held_repeat::hold_reason;
use crate::agent::hook::CombinedDecision;
use crate::agent::run::run_shared::RunShared;
use crate::agent::{RunHandle, State};
use crate::error::{Error, ErrorKind};
use crate::item::{
    EffectReport, Grant, GrantTerms, PendingCall, RawJson, ToolCall, ToolResult, join_call_id,
};
use crate::tool::{
    Permission, PermissionDecision, Tool, ToolContext, ToolPolicy, Verdict, redact_each,
};

/// The policy that applies an agent's hooks, verdicts and pool to the tool calls in one turn.
pub(in crate::agent) struct RunPolicy {
    run: RunShared,
    state: State,
}

impl RunPolicy {
    pub(in crate::agent) fn new(run: RunShared, state: State) -> Self {
        Self { run, state }
    }

    /// Returns the verdict, if any, that was passed for a call when the run was resumed, with the
    /// request that the verdict answers.
    fn resumed_verdict(&self, call_id: &str) -> Option<&(PendingCall, Verdict)> {
        self.state.approvals.resume_verdicts.as_ref()?.get(call_id)
    }
}

impl RunPolicy {
    /// Returns the call with the arguments that its tool reads.
    fn as_read<'a>(&self, call: &'a PendingCall) -> Cow<'a, PendingCall> {
        let toolkit = self.run.toolkit();
        let arguments = toolkit.get(&call.name).map(|tool| tool.read_arguments(&call.arguments));
        match arguments {
            Some(Cow::Owned(arguments)) => Cow::Owned(PendingCall { arguments, ..call.clone() }),
            Some(Cow::Borrowed(_)) | None => Cow::Borrowed(call),
        }
    }
}

impl RunPolicy {
    /// Returns the reason why the agent holds back a call, if it does.
    fn hold_reason(&self, call: &ToolCall) -> Option<String> {
        let tools = &self.run.settings.tools;
        if !tools.holds_unclear_repeats || tools.read_only_tools.contains(&call.name) {
            return None;
        }
        let toolkit = self.run.toolkit();
        let tool = toolkit.get(&call.name).filter(|tool| !tool.is_idempotent())?;
        hold_reason(&self.state.history, tool, call)
    }
}

impl ToolPolicy for RunPolicy {
    fn repair_arguments(&mut self, call: &ToolCall, why: &str) -> Result<Option<String>, Error> {
        self.run.hooks().repair_arguments(&self.state, call, why)
    }

    fn before_call(&mut self, call: &ToolCall) -> BoxFuture<'static, Result<Permission, Error>> {
        // A verdict that was passed when the run was resumed applies even if the call does not need
        // approval.
        let otherwise = match self.resumed_verdict(&call.call_id) {
            Some(_) => PermissionDecision::RequireApproval,
            None => PermissionDecision::Allow,
        };
        let held = self.hold_reason(call);
        let hooks = self.run.hooks();
        if hooks.is_empty() {
            let otherwise = held.map_or(otherwise, PermissionDecision::Deny);
            return future::ready(Ok(Permission { decision: otherwise, arguments: None })).boxed();
        }
        let (hooks, state, call) = (hooks.clone(), self.state.clone(), call.clone());
        async move {
            let decided = match hooks.before_tool(&state, &call).await? {
                CombinedDecision::Deny { reason } => {
                    Permission { decision: PermissionDecision::Deny(reason), arguments: None }
                }
                CombinedDecision::RequireApproval { arguments } => {
                    Permission { decision: PermissionDecision::RequireApproval, arguments }
                }
                CombinedDecision::Allow { arguments } => {
                    Permission { decision: otherwise, arguments }
                }
            };
            // A hook's reason for a refusal is more precise.
            Ok(match (held, &decided.decision) {
                (Some(reason), decision) if !matches!(decision, PermissionDecision::Deny(_)) => {
                    Permission { decision: PermissionDecision::Deny(reason), arguments: None }
                }
                _ => decided,
            })
        }
        .boxed()
    }

    fn on_invalid_rewrite(&mut self, call: &ToolCall, why: &str) {
        let what =
            format!("a hook rewrote the arguments of `{}` into invalid ones: {why}", call.name);
        self.run.hooks().on_failure(&self.state, &Error::new(ErrorKind::Hook, what));
    }

    fn next_approval_id(&mut self) -> String {
        self.run.settings.ids.next_id()
    }

    fn on_verdict_requested(&mut self, call: &PendingCall) {
        let toolkit = self.run.toolkit();
        let is_external = toolkit.get(&call.name).is_some_and(Tool::is_external);
        self.run.control().verdicts.register(call, is_external);
    }

    fn verdict(&mut self, call: &PendingCall) -> Option<Verdict> {
        if let Some((answered, verdict)) = self.resumed_verdict(&call.call_id) {
            // If no verdict was requested, the answered call has the arguments that the model
            // wrote.
            let answered = &self.as_read(answered);
            let is_valid = match verdict {
                Verdict::Approve | Verdict::ApproveAlways(_) => answered.covers(call),
                // The tool does not run, so its definition is irrelevant.
                Verdict::Output(_) => answered.has_same_arguments(call),
                Verdict::Deny(_) => true,
            };
            if is_valid {
                return Some(verdict.clone());
            }
            // A hook has rewritten the arguments since the verdict was given, or the tool has
            // changed. Another verdict is requested.
        }
        self.run.control().verdicts.take(call)
    }

    fn find_grant(&mut self, call: &PendingCall) -> Option<String> {
        let control = self.run.control();
        let predicates = &self.run.settings.tools.grant_predicates;
        let source = || self.run.tool_source(&call.name);
        let holds = |name: &str| predicates.holds(name, &call.arguments);
        let found = control.grants.find(call, source, holds)?;
        // A verdict that was accepted before the grant was found takes precedence.
        control.verdicts.withdraw(call).then_some(found)
    }

    fn create_grant(&mut self, call: &PendingCall, terms: &GrantTerms) -> Option<Grant> {
        let source = self.run.tool_source(&call.name);
        let answered = self.resumed_verdict(&call.call_id).map(|(answered, _)| answered);
        let id = match answered {
            // The call was left open by a crash, and no approval was requested.
            Some(answered) if answered.approval_id.is_empty() => {
                join_call_id(self.state.history.id(), &call.call_id)
            }
            Some(answered) => answered.approval_id.clone(),
            None => call.approval_id.clone(),
        };
        Some(Grant { id, ..Grant::new(call, source, terms.clone()) })
    }

    fn take_revoked_grant(&mut self) -> Option<String> {
        self.run.control().grants.take_revoked()
    }

    fn waits_for_verdicts(&self) -> bool {
        // No other call is running at this point. If a verdict has arrived since the last check,
        // the task has been woken.
        let control = self.run.control();
        let suspends = self.run.effects.world().can_suspend();
        let waits =
            self.run.settings.tools.interactive && !suspends && control.can_receive_verdict();
        waits || control.verdicts.has_verdict_or_stop_accepting()
    }

    fn acquire_slot(
        &mut self,
        _call: &ToolCall,
    ) -> Option<BoxFuture<'static, Box<dyn Any + Send>>> {
        let slot = self.run.settings.limits.budget.pool()?.acquire_slot();
        Some(slot.map(|slot| -> Box<dyn Any + Send> { Box::new(slot) }).boxed())
    }

    fn on_start(&mut self, context: &ToolContext) {
        self.run.control().tools.add_started_call(context);
    }

    fn after_call(&mut self, call: &ToolCall, result: &mut ToolResult) -> Result<(), Error> {
        self.run.hooks().after_tool(&self.state, call, result)
    }

    fn redact_progress(&mut self, call: &ToolCall, data: &mut RawJson) -> Result<(), Error> {
        self.run.hooks().redact_progress(&self.state, call, data)
    }

    fn redact_evidence(&mut self, call: &ToolCall, evidence: &mut RawJson) -> Result<(), Error> {
        self.run.hooks().redact_evidence(&self.state, call, evidence)
    }

    fn policy_extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::<RunHandle>::clone(&self.run.handle))
    }
}

/// Returns the effect report of a dropped call, as redacted by hooks.
pub(in crate::agent) fn redacted_report(
    run: &RunShared,
    state: &State,
    context: &ToolContext,
) -> EffectReport {
    let mut report = context.effect_report();
    let hooks = run.hooks();
    // If a hook panics, the evidence is discarded, and the error is reported to hooks.
    let redact = |json: &mut RawJson| hooks.redact_evidence(state, context.call(), json);
    if let Err(error) = redact_each(&mut report.evidence, redact) {
        hooks.on_failure(state, &error);
    }
    report
}
