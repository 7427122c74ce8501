//! Plans are made, and no tool is called.

use crate::agent::detect::detection_input::{DetectionInput, Finding};

/// Sees a model that only speaks, again and again, though it is told to go on.
///
/// What is counted are turns that a stop hook, the policy on evidence or the token target has sent
/// back. Whoever steers or follows up begins the count anew: an answer to somebody is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanningWithoutExecution {
    /// So many turns in a row have no call; 3 by default, 0 for never.
    pub max_planning_turns: u32,
}

impl Default for PlanningWithoutExecution {
    fn default() -> Self {
        Self { max_planning_turns: 3 }
    }
}

impl PlanningWithoutExecution {
    pub(super) fn detect(self, seen: &DetectionInput<'_>) -> Option<Finding> {
        let turns = seen.state.streaks.idle_turns + 1;
        (seen.turn.calls().is_empty() && turns == self.max_planning_turns).then(|| Finding {
            call_id: None,
            message: format!("{turns} turns in a row have no call"),
        })
    }
}
