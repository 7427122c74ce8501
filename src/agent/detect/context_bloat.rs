//! Detects a context that grows without progress.

use crate::agent::detect::detection_input::{CompletedIteration, DetectionInput, Finding};
use crate::item::Evidence;

/// Detects requests that become too long, using the token counts that providers report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextBloat {
    /// The number of input tokens at which a request counts as too long; 150,000 by default. If set
    /// to 0, no request counts as too long.
    pub max_input_tokens: u64,
    /// The factor by which the number of input tokens may grow over `growth_window_turns` turns
    /// without a change or a new check result; 4 by default. If set to 0, growth is never reported.
    pub growth_factor: u64,
    /// The number of turns over which growth is measured, counting only turns with tool calls; 8 by
    /// default.
    pub growth_window_turns: usize,
    /// The number of input tokens below which growth is not reported; 60,000 by default.
    pub min_input_tokens: u64,
}

impl Default for ContextBloat {
    fn default() -> Self {
        Self {
            max_input_tokens: 150_000,
            growth_factor: 4,
            growth_window_turns: 8,
            min_input_tokens: 60_000,
        }
    }
}

impl ContextBloat {
    pub(super) fn detect(&self, seen: &DetectionInput<'_>) -> Option<Finding> {
        if !seen.has_new_iteration && seen.state.counts.model_calls > 1 {
            return None;
        }
        let mut tokens: Vec<u64> =
            seen.iterations.iter().map(|iteration| iteration.input_tokens).collect();
        tokens.push(seen.turn.usage().input_tokens);
        let newest = tokens.len() - 1;
        let over = |at: usize| self.max_input_tokens > 0 && tokens[at] >= self.max_input_tokens;
        let grown = |at: usize| self.has_grown(seen, &tokens, at);
        let begins = |is: &dyn Fn(usize) -> bool| is(newest) && (newest == 0 || !is(newest - 1));
        let now = tokens[newest];
        let what = if begins(&over) {
            format!("a request has {now} input tokens")
        } else if begins(&grown) {
            let turns = self.growth_window_turns;
            format!(
                "a request has {now} input tokens, up from {} {turns} turns ago, and nothing was \
                 changed or proven in between",
                tokens[newest - turns]
            )
        } else {
            return None;
        };
        Some(Finding { call_id: None, message: what })
    }

    fn has_grown(&self, seen: &DetectionInput<'_>, tokens: &[u64], at: usize) -> bool {
        let Some(from) = at.checked_sub(self.growth_window_turns.max(1)) else { return false };
        let is_longer = self.growth_factor > 0
            && tokens[from] > 0
            && tokens[at] >= self.min_input_tokens
            && tokens[at] >= tokens[from].saturating_mul(self.growth_factor);
        is_longer && !has_progress(seen, from, at)
    }
}

/// Returns whether a change, or a check with a new result, was recorded in the iterations
/// `from..to`.
fn has_progress(seen: &DetectionInput<'_>, from: usize, to: usize) -> bool {
    let known: Vec<Evidence> = seen.iterations[..from]
        .iter()
        .flat_map(CompletedIteration::recorded_checks)
        .map(|(_, it)| it)
        .collect();
    seen.iterations[from..to].iter().any(|iteration| {
        iteration.has_side_effects()
            || iteration.recorded_checks().any(|(_, check)| !known.contains(&check))
    })
}
