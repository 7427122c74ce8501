//! Detects a model that plans but calls no tools.

use crate::agent::detect::detection_input::{DetectionInput, Finding};

/// Detects models that repeatedly answer without calling a tool, even though they are prompted to
/// continue.
///
/// The detector counts the turns after which a stop hook, the evidence policy or the token target
/// caused the run to continue. Steering input and follow-ups reset the count, since an answer to
/// new input is not a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanningWithoutExecution {
    /// The number of consecutive turns without a tool call after which a problem is reported; 3 by
    /// default. If set to 0, no problem is reported.
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
