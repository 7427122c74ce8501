//! Checks the verdicts that are passed to a run that resumes pending calls.

use std::collections::{BTreeMap, HashMap, HashSet};

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
    let has_sources = !settings.tools.sources.is_empty();
    ResumedAgent { toolkit, has_sources }.check_verdicts(history, verdicts)
}

/// The parts of an agent that are needed to check the verdicts on its calls.
struct ResumedAgent<'a> {
    toolkit: &'a Toolkit,
    /// Whether the agent has tool sources, which may provide more tools.
    has_sources: bool,
}

impl ResumedAgent<'_> {
    fn check_verdicts(
        &self,
        history: &History,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<ResumeVerdicts, Error> {
        let mut own: BTreeMap<String, (PendingCall, Verdict)> = BTreeMap::new();
        let mut inner: BTreeMap<String, Vec<(PendingCall, Verdict)>> = BTreeMap::new();
        for (call, verdict) in verdicts {
            if let Some((parent, call)) = call.split_root() {
                inner.entry(parent.to_owned()).or_default().push((call, verdict));
            } else if let Some((call, _)) = own.insert(call.call_id.clone(), (call, verdict)) {
                return invalid_verdict("a call has two verdicts", &call.call_id);
            }
        }
        let open = history.unanswered_calls();
        {
            // A verdict on another call is a conflict, even if it leaves an open call without a
            // verdict.
            let open_ids: HashSet<&str> = open.iter().map(|call| call.call_id.as_str()).collect();
            let is_open = |call_id: &String| open_ids.contains(call_id.as_str());
            let is_suspended =
                |call_id: &String| is_open(call_id) && history.nested_history(call_id).is_some();
            let of_own = own.keys().find(|call_id| !is_open(call_id));
            let of_inner = || inner.keys().find(|call_id| !is_suspended(call_id));
            if let Some(call_id) = of_own.or_else(of_inner) {
                return conflicting_verdict("a verdict is for a call that is not open", call_id);
            }
        }
        let (mut checked, mut nested) = (HashMap::new(), HashMap::new());
        for call in open {
            let call_id = call.call_id.clone();
            let Some(child) = history.nested_history(&call_id) else {
                let given = own.remove(&call_id);
                checked.insert(call_id, self.check_verdict(history, call, given)?);
                continue;
            };
            if own.contains_key(&call_id) {
                let why = "this call runs a sub-agent: give the verdicts for the sub-agent's calls";
                return invalid_verdict(why, &call_id);
            }
            let given = inner.remove(&call_id).unwrap_or_default();
            let call = self.toolkit.unwrapped_call(&call);
            let checked = self.check_sub_agent(&call, child, given)?.map_err(|error| {
                let message = format!("in the sub-agent of `{call_id}`: {}", error.message());
                Error::new(error.kind(), message).with_parameter(call_id.clone())
            })?;
            nested.insert(call_id, checked);
        }
        Ok(ResumeVerdicts::new(checked, nested))
    }

    /// Checks the verdict on an open call, and returns the verdict with the call that it answers.
    fn check_verdict(
        &self,
        history: &History,
        call: ToolCall,
        given: Option<(PendingCall, Verdict)>,
    ) -> Result<(PendingCall, Verdict), Error> {
        let call_id = call.call_id.clone();
        let Some((given, verdict)) = given else {
            return invalid_verdict("a call has no verdict", &call_id);
        };
        // The history contains a call as the model wrote it, which may be a call to a wrapper tool.
        // The verdict may name the wrapped call, which is the call that runs.
        let unwrapped = |call: PendingCall| -> PendingCall {
            let inner = self.toolkit.unwrapped_call(&call.to_tool_call()).into_owned();
            PendingCall { name: inner.name, arguments: inner.arguments, ..call }
        };
        let requested = history.pending_call(call);
        let (given, requested) = match requested.approval_id.is_empty() {
            true => (unwrapped(given), unwrapped(requested)),
            false => (given, requested),
        };
        if !verdict.answers(&requested, &given) {
            return conflicting_verdict("a verdict does not answer the open request", &call_id);
        }
        let tool = self.toolkit.get(&requested.name);
        if verdict.is_approval() {
            if tool.is_some_and(Tool::is_external) {
                return invalid_verdict(
                    "an external tool cannot run here: its result is needed",
                    &call_id,
                );
            }
            if self.is_unknown(&requested.name) {
                return invalid_verdict(
                    &format!("there is no tool `{}`", requested.name),
                    &call_id,
                );
            }
            if tool.is_some_and(|tool| !requested.has_definition(&tool.definition())) {
                let why = format!("the tool `{}` has changed since the request", requested.name);
                return conflicting_verdict(&why, &call_id);
            }
        }
        Ok((requested, verdict))
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
        let can_resume = |toolkit: &Toolkit| match is_answered {
            true => Ok(()),
            false => toolkit.resume(child).map(drop),
        };
        let Some(tool) = self.toolkit.get(&call.name) else {
            if self.is_unknown(&call.name) {
                let why = format!("there is no tool `{}` to resume", call.name);
                return invalid_verdict(&why, &call.call_id);
            }
            // The sub-agent is not known until the tools from the sources have been listed.
            let toolkit = &Toolkit::default();
            let agent = ResumedAgent { toolkit, has_sources: true };
            return Ok(can_resume(toolkit).and_then(|()| agent.check_verdicts(child, given)));
        };
        let Some(agent) = tool.agent::<AgentSettings>() else {
            let why = format!("the tool `{}` is not an agent that can resume", call.name);
            return invalid_verdict(&why, &call.call_id);
        };
        let toolkit = &agent.tools.toolkit;
        Ok(can_resume(toolkit).and_then(|()| check_verdicts(&agent, toolkit, child, given)))
    }

    /// Returns whether the tool is unknown and the agent has no source that could provide the tool.
    fn is_unknown(&self, name: &str) -> bool {
        !self.has_sources && self.toolkit.get(name).is_none()
    }
}

fn invalid_verdict<T>(why: &str, call_id: &str) -> Result<T, Error> {
    verdict_error(ErrorKind::InvalidRequest, why, call_id)
}

/// Returns the error for a verdict that does not answer a request that is still open.
fn conflicting_verdict<T>(why: &str, call_id: &str) -> Result<T, Error> {
    verdict_error(ErrorKind::Conflict, why, call_id)
}

fn verdict_error<T>(kind: ErrorKind, why: &str, call_id: &str) -> Result<T, Error> {
    Err(Error::new(kind, format!("{why} (`{call_id}`)")).with_parameter(call_id))
}
