//! What stands between the calls of a turn and their tools: hooks, verdicts, holders.

use std::any::Any;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{self, BoxFuture};

use crate::agent::hook::Permitted;
use crate::agent::shared::Shared;
use crate::agent::{RunHandle, State};
use crate::error::Error;
use crate::item::{EffectReport, Json, ToolCall, ToolResult};
use crate::tool::{Answer, Gate, Permit, Tool, ToolContext, Verdict, redact_all};

/// The gate of one turn.
pub(super) struct RunGate {
    run: Shared,
    state: State,
}

impl RunGate {
    pub(super) fn new(run: Shared, state: State) -> Self {
        Self { run, state }
    }

    /// The verdict that the run was resumed with. It holds for exactly the call it was given for.
    fn resumed(&self, call: &ToolCall) -> Option<Verdict> {
        let (judged, verdict) = self.state.approvals.resuming.as_ref()?.get(&call.call_id)?;
        Some(match judged == call {
            true => verdict.clone(),
            false => Verdict::Deny("the verdict was given for other arguments".to_owned()),
        })
    }
}

impl Gate for RunGate {
    fn repair(&mut self, call: &ToolCall, why: &str) -> Result<Option<String>, Error> {
        self.run.hooks().repair(&self.state, call, why)
    }

    fn before(&mut self, call: &ToolCall) -> BoxFuture<'static, Result<Permit, Error>> {
        // Whoever has judged a call is heard, also where nobody would have to be asked.
        let judged = self.resumed(call).is_some();
        let otherwise = if judged { Answer::Ask } else { Answer::Run };
        let hooks = self.run.hooks();
        if hooks.is_empty() {
            return future::ready(Ok(Permit { answer: otherwise, arguments: None })).boxed();
        }
        let (hooks, state, call) = (hooks.clone(), self.state.clone(), call.clone());
        async move {
            Ok(match hooks.before_tool(&state, &call).await? {
                Permitted::Deny { why } => Permit { answer: Answer::Deny(why), arguments: None },
                Permitted::Ask { arguments } => Permit { answer: Answer::Ask, arguments },
                Permitted::Run { arguments } => Permit { answer: otherwise, arguments },
            })
        }
        .boxed()
    }

    fn asked(&mut self, call: &ToolCall) {
        let tool = self.run.settings.tools.kit.get(&call.name);
        self.run.control().ask(call, tool.is_some_and(Tool::is_external));
    }

    fn verdict(&mut self, call: &ToolCall) -> Option<Verdict> {
        self.resumed(call).or_else(|| self.run.control().verdict(call))
    }

    fn waits(&self) -> bool {
        // Nothing runs any more. A verdict that came since they were looked at has woken the task.
        let control = self.run.control();
        let suspends = self.run.effects.world().suspends();
        let waits = self.run.settings.tools.interactive && !suspends && control.can_be_answered();
        waits || control.holds_verdict_or_closes()
    }

    fn slot(&mut self, _call: &ToolCall) -> Option<BoxFuture<'static, Box<dyn Any + Send>>> {
        let slot = self.run.settings.bounds.budget.shared_pool()?.slot();
        Some(slot.map(|slot| -> Box<dyn Any + Send> { Box::new(slot) }).boxed())
    }

    fn starts(&mut self, context: &ToolContext) {
        self.run.control().start(context);
    }

    fn after(&mut self, call: &ToolCall, result: &mut ToolResult) -> Result<(), Error> {
        self.run.hooks().after_tool(&self.state, call, result)
    }

    fn redact_progress(&mut self, call: &ToolCall, data: &mut Json) -> Result<(), Error> {
        self.run.hooks().redact_progress(&self.state, call, data)
    }

    fn redact_evidence(&mut self, call: &ToolCall, evidence: &mut Json) -> Result<(), Error> {
        self.run.hooks().redact_evidence(&self.state, call, evidence)
    }

    fn extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::<RunHandle>::clone(&self.run.handle))
    }
}

/// What a call that was dropped had put on record, as hooks let it be seen.
pub(super) fn redacted(run: &Shared, state: &State, context: &ToolContext) -> EffectReport {
    let mut report = context.report();
    let call = context.turn().tool_calls().find(|call| call.call_id == context.call_id());
    if let Some(call) = call {
        let hooks = run.hooks();
        // The call is over: what could not be looked through is not kept, and hooks are told.
        let redact = |json: &mut Json| hooks.redact_evidence(state, call, json);
        if let Err(error) = redact_all(&mut report.evidence, redact) {
            hooks.failure(state, &error);
        }
    }
    report
}
