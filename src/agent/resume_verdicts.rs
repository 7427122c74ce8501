//! Defines the verdicts passed when a run is resumed.

use std::collections::HashMap;
use std::sync::Arc;

use crate::item::PendingCall;
use crate::tool::Verdict;

/// The verdicts passed when a run is resumed, both on the run's own calls and on its sub-agents'
/// calls. This type is cheap to clone.
///
/// Each verdict applies only to the exact call for which it was given, including the call's
/// arguments and the definition of its tool.
#[derive(Clone, Debug, Default)]
pub struct ResumeVerdicts(Arc<VerdictMap>);

#[derive(Debug, Default)]
struct VerdictMap {
    /// The run's own calls and their verdicts, by call id.
    own_calls: HashMap<String, (PendingCall, Verdict)>,
    /// The verdicts on calls made by sub-agents, by the id of the call that runs the sub-agent.
    sub_agents: HashMap<String, ResumeVerdicts>,
}

impl ResumeVerdicts {
    pub(super) fn new(
        own: HashMap<String, (PendingCall, Verdict)>,
        nested: HashMap<String, Self>,
    ) -> Self {
        Self(Arc::new(VerdictMap { own_calls: own, sub_agents: nested }))
    }

    /// Returns the call with this id and its verdict, if the run itself, not a sub-agent, made the
    /// call.
    pub(crate) fn get(&self, call_id: &str) -> Option<&(PendingCall, Verdict)> {
        self.0.own_calls.get(call_id)
    }

    /// Returns the verdicts on the calls made by the sub-agent that the call `call_id` started.
    pub(crate) fn for_sub_agent(&self, call_id: &str) -> Option<&Self> {
        self.0.sub_agents.get(call_id)
    }

    /// Creates a collection of verdicts on the run's own calls.
    pub(crate) fn for_own_calls(
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Self {
        let by_id =
            |(call, verdict): (PendingCall, Verdict)| (call.call_id.clone(), (call, verdict));
        let own = verdicts.into_iter().map(by_id).collect();
        Self::new(own, HashMap::new())
    }
}
