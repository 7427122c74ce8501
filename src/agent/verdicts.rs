//! The verdicts that a run is resumed with.

use std::collections::HashMap;
use std::sync::Arc;

use crate::agent::Agent;
use crate::error::{Error, ErrorKind};
use crate::item::{History, PendingCall, ToolCall};
use crate::tool::{Tool, Verdict};

/// The verdicts that a run is resumed with, those on its own calls and those on calls of its
/// sub-agents. Cheap to clone.
///
/// Each holds for exactly the call it was given for, its arguments included.
#[derive(Clone, Debug, Default)]
pub struct Verdicts(Arc<Given>);

#[derive(Debug, Default)]
struct Given {
    /// By call id.
    own: HashMap<String, (ToolCall, Verdict)>,
    /// Those on calls of sub-agents, by the id of the call that the sub-agent runs as.
    nested: HashMap<String, Verdicts>,
}

impl Verdicts {
    /// The verdict on the run's own call of this id, with the call it was given for.
    pub fn get(&self, call_id: &str) -> Option<&(ToolCall, Verdict)> {
        self.0.own.get(call_id)
    }

    /// The verdicts on the calls of the sub-agent that runs as the call `call_id`.
    pub fn nested(&self, call_id: &str) -> Option<&Self> {
        self.0.nested.get(call_id)
    }

    /// Verdicts on the run's own calls.
    pub(crate) fn on_own(verdicts: impl IntoIterator<Item = (ToolCall, Verdict)>) -> Self {
        let by_id = |(call, verdict): (ToolCall, Verdict)| (call.call_id.clone(), (call, verdict));
        let own = verdicts.into_iter().map(by_id).collect();
        Self(Arc::new(Given { own, nested: HashMap::new() }))
    }
}

impl Agent {
    /// Checks that each call that is open in the history has exactly one verdict, also in the
    /// histories of its suspended sub-agents, and that these can continue.
    pub(super) fn judged(
        &self,
        history: &History,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<Verdicts, Error> {
        let mut own: HashMap<String, (ToolCall, Verdict)> = HashMap::new();
        let mut inner: HashMap<String, Vec<(PendingCall, Verdict)>> = HashMap::new();
        for (call, verdict) in verdicts {
            if let Some((parent, call)) = call.split() {
                inner.entry(parent.to_owned()).or_default().push((call, verdict));
                continue;
            }
            let call = call.call();
            let is_external = self.kit().get(&call.name).is_some_and(Tool::is_external);
            if is_external && verdict == Verdict::Approve {
                return refused("an external tool cannot run here: its result is needed", &call);
            }
            if let Some((call, _)) = own.insert(call.call_id.clone(), (call, verdict)) {
                return refused("a call has two verdicts", &call);
            }
        }
        let open = history.unanswered_calls();
        let mut nested = HashMap::new();
        for call in &open {
            if let Some(child) = history.nested(&call.call_id) {
                if own.contains_key(&call.call_id) {
                    let why = "a sub-agent runs as this call: the verdicts are on its own calls";
                    return refused(why, call);
                }
                let Some(tool) = self.kit().get(&call.name) else {
                    return refused(&format!("there is no tool `{}` to resume", call.name), call);
                };
                let Some(agent) = tool.agent::<Self>() else {
                    let why = format!("the tool `{}` is not an agent that can resume", call.name);
                    return refused(&why, call);
                };
                let given = inner.remove(&call.call_id).unwrap_or_default();
                let resumable = match child.unanswered_calls().is_empty() {
                    // It was dropped after its calls had their results.
                    true => Ok(()),
                    false => agent.kit().resume(child).map(drop),
                };
                let judged = resumable.and_then(|()| agent.judged(child, given));
                let judged = judged.map_err(|error| {
                    let call_id = &call.call_id;
                    let message = format!("in the sub-agent of `{call_id}`: {}", error.message());
                    Error::new(error.kind(), message).with_parameter(call_id.clone())
                })?;
                nested.insert(call.call_id.clone(), judged);
                continue;
            }
            let Some((judged, verdict)) = own.get(&call.call_id) else {
                return refused("a call has no verdict", call);
            };
            if *verdict == Verdict::Approve && self.kit().get(&call.name).is_none() {
                return refused(&format!("there is no tool `{}`", call.name), call);
            }
            // Only a hook can have made other arguments of them.
            if judged.name != call.name || (self.hooks.is_empty() && judged != call) {
                return refused("a verdict was given for another call", call);
            }
        }
        // Which one is reported does not depend on how a map is laid out.
        let is_closed = |call: &&ToolCall| open.iter().all(|it| it.call_id != call.call_id);
        let of_own = own.values().map(|(call, _)| call).filter(is_closed);
        let first = of_own.min_by(|a, b| a.call_id.cmp(&b.call_id)).cloned();
        let of_inner = inner.into_values().flatten().map(|(call, _)| call.call());
        if let Some(call) = first.or(of_inner.min_by(|a, b| a.call_id.cmp(&b.call_id))) {
            return refused("a verdict is for a call that is not open", &call);
        }
        Ok(Verdicts(Arc::new(Given { own, nested })))
    }
}

fn refused<T>(why: &str, call: &ToolCall) -> Result<T, Error> {
    let message = format!("{why} (`{}`)", call.call_id);
    Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter(call.call_id.clone()))
}
