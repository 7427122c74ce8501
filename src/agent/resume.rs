//! Checks the verdicts that are passed to a run that resumes pending calls.

use std::collections::HashMap;

use crate::agent::ResumeVerdicts;
use crate::agent::settings::AgentSettings;
use crate::error::{Error, ErrorKind};
use crate::item::{History, PendingCall, ToolCall};
use crate::tool::{Tool, Toolkit, Verdict};

/// Checks that there is exactly one verdict on each open call in the history, including the calls
/// in the histories of suspended sub-agents. Also checks that the suspended sub-agents can
/// continue. `toolkit` contains the tools that are known so far; tools from sources are looked up
/// after the run has listed them.
pub(super) fn check_verdicts(
    settings: &AgentSettings,
    toolkit: &Toolkit,
    history: &History,
    verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
) -> Result<ResumeVerdicts, Error> {
    let agent = JudgedAgent {
        toolkit,
        has_sources: !settings.tools.sources.is_empty(),
        rewrites_arguments: !settings.hooks.is_empty(),
    };
    agent.check_verdicts(history, verdicts)
}

/// The parts of an agent that are needed to check the verdicts on its calls.
struct JudgedAgent<'a> {
    toolkit: &'a Toolkit,
    /// Whether the agent has tool sources, which may provide more tools.
    has_sources: bool,
    /// Whether a hook may have changed a call's arguments.
    rewrites_arguments: bool,
}

impl JudgedAgent<'_> {
    fn check_verdicts(
        &self,
        history: &History,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<ResumeVerdicts, Error> {
        let kit = self.toolkit;
        let mut own: HashMap<String, (ToolCall, Verdict)> = HashMap::new();
        let mut inner: HashMap<String, Vec<(PendingCall, Verdict)>> = HashMap::new();
        for (call, verdict) in verdicts {
            if let Some((parent, call)) = call.split_root() {
                inner.entry(parent.to_owned()).or_default().push((call, verdict));
                continue;
            }
            // The history may contain a call to a wrapper tool, with the actual call nested inside
            // it.
            let call = kit.unwrapped_call(&call.to_tool_call()).into_owned();
            let is_external = kit.get(&call.name).is_some_and(Tool::is_external);
            if is_external && verdict == Verdict::Approve {
                return invalid_verdict(
                    "an external tool cannot run here: its result is needed",
                    &call,
                );
            }
            if let Some((call, _)) = own.insert(call.call_id.clone(), (call, verdict)) {
                return invalid_verdict("a call has two verdicts", &call);
            }
        }
        let open = history.unanswered_calls();
        let open: Vec<ToolCall> =
            open.iter().map(|call| kit.unwrapped_call(call).into_owned()).collect();
        let mut nested = HashMap::new();
        for call in &open {
            if let Some(child) = history.nested_history(&call.call_id) {
                if own.contains_key(&call.call_id) {
                    let why = "this call runs a sub-agent: give the verdicts for the sub-agent's \
                    calls";
                    return invalid_verdict(why, call);
                }
                let given = inner.remove(&call.call_id).unwrap_or_default();
                let judged = self.check_sub_agent(call, child, given)?;
                let judged = judged.map_err(|error| {
                    let call_id = &call.call_id;
                    let message = format!("in the sub-agent of `{call_id}`: {}", error.message());
                    Error::new(error.kind(), message).with_parameter(call_id.clone())
                })?;
                nested.insert(call.call_id.clone(), judged);
                continue;
            }
            let Some((judged, verdict)) = own.get(&call.call_id) else {
                return invalid_verdict("a call has no verdict", call);
            };
            if *verdict == Verdict::Approve && self.is_unknown(&call.name) {
                return invalid_verdict(&format!("there is no tool `{}`", call.name), call);
            }
            // Only a hook can have changed the arguments. A hook may also have repaired a wrapper
            // tool's call from which no inner call could be read.
            let is_repaired = kit.wraps_calls(&call.name) && self.rewrites_arguments;
            if (judged.name != call.name && !is_repaired)
                || (!self.rewrites_arguments && judged != call)
            {
                return invalid_verdict("a verdict was given for another call", call);
            }
        }
        // The reported call is chosen by its id, so that the error does not depend on the map's
        // iteration order.
        let is_closed = |call: &&ToolCall| open.iter().all(|it| it.call_id != call.call_id);
        let of_own = own.values().map(|(call, _)| call).filter(is_closed);
        let first = of_own.min_by(|a, b| a.call_id.cmp(&b.call_id)).cloned();
        let of_inner = inner.into_values().flatten().map(|(call, _)| call.to_tool_call());
        if let Some(call) = first.or(of_inner.min_by(|a, b| a.call_id.cmp(&b.call_id))) {
            return invalid_verdict("a verdict is for a call that is not open", &call);
        }
        Ok(ResumeVerdicts::new(own, nested))
    }

    /// Checks the verdicts on the calls made by a suspended sub-agent. An error in the outer
    /// `Result` concerns the call that runs the sub-agent, and an error in the inner `Result`
    /// concerns the sub-agent itself.
    fn check_sub_agent(
        &self,
        call: &ToolCall,
        child: &History,
        given: Vec<(PendingCall, Verdict)>,
    ) -> Result<Result<ResumeVerdicts, Error>, Error> {
        // If all of the sub-agent's calls have been answered, the sub-agent was dropped afterwards.
        let is_answered = child.unanswered_calls().is_empty();
        let can_resume = |kit: &Toolkit| match is_answered {
            true => Ok(()),
            false => kit.resume(child).map(drop),
        };
        let Some(tool) = self.toolkit.get(&call.name) else {
            if self.is_unknown(&call.name) {
                return invalid_verdict(
                    &format!("there is no tool `{}` to resume", call.name),
                    call,
                );
            }
            // The sub-agent is not known until the tools from the sources have been listed.
            let (toolkit, has_sources) = (&Toolkit::default(), true);
            let agent = JudgedAgent { toolkit, has_sources, rewrites_arguments: true };
            return Ok(can_resume(toolkit).and_then(|()| agent.check_verdicts(child, given)));
        };
        let Some(agent) = tool.agent::<AgentSettings>() else {
            let why = format!("the tool `{}` is not an agent that can resume", call.name);
            return invalid_verdict(&why, call);
        };
        let toolkit = &agent.tools.toolkit;
        Ok(can_resume(toolkit).and_then(|()| check_verdicts(&agent, toolkit, child, given)))
    }

    /// Returns whether the tool is unknown and the agent has no source that could provide the tool.
    fn is_unknown(&self, name: &str) -> bool {
        !self.has_sources && self.toolkit.get(name).is_none()
    }
}

fn invalid_verdict<T>(why: &str, call: &ToolCall) -> Result<T, Error> {
    let message = format!("{why} (`{}`)", call.call_id);
    Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter(call.call_id.clone()))
}
