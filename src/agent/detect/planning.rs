//! Plans are made, and no tool is called.

use crate::agent::detect::seen::{Found, Seen};

/// Sees a model that only speaks, again and again, though it is told to go on.
///
/// What is counted are turns that a stop hook, the policy on evidence or the token target has sent
/// back. Whoever steers or follows up begins the count anew: an answer to somebody is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanningWithoutExecution {
    /// So many turns in a row have no call; 3 by default, 0 for never.
    pub turns: u32,
}

impl Default for PlanningWithoutExecution {
    fn default() -> Self {
        Self { turns: 3 }
    }
}

impl PlanningWithoutExecution {
    pub(super) fn find(self, seen: &Seen<'_>) -> Option<Found> {
        let turns = seen.state.streaks.idle + 1;
        (seen.turn.calls().is_empty() && turns == self.turns)
            .then(|| Found { call_id: None, what: format!("{turns} turns in a row have no call") })
    }
}
