//! The context grows, and nothing comes of it.

use crate::agent::detect::seen::{Found, Lap, Seen};
use crate::item::Evidence;

/// Sees requests that become too long, by the tokens that providers report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextBloat {
    /// A request has so many input tokens; 150,000 by default, 0 for never.
    pub cap: u64,
    /// A request has so many times the input tokens of the one `turns` before it, while nothing was
    /// changed and no check has said anything new; 4 by default, 0 for never.
    pub times: u64,
    /// Over so many turns with calls; 8 by default.
    pub turns: usize,
    /// What is shorter than this is never too long; 60,000 tokens by default.
    pub at_least: u64,
}

impl Default for ContextBloat {
    fn default() -> Self {
        Self { cap: 150_000, times: 4, turns: 8, at_least: 60_000 }
    }
}

impl ContextBloat {
    pub(super) fn find(&self, seen: &Seen<'_>) -> Option<Found> {
        if !seen.is_fresh && seen.state.counts.model_calls > 1 {
            return None;
        }
        let mut tokens: Vec<u64> = seen.laps.iter().map(|lap| lap.input_tokens).collect();
        tokens.push(seen.turn.usage().input_tokens);
        let newest = tokens.len() - 1;
        let over = |at: usize| self.cap > 0 && tokens[at] >= self.cap;
        let grown = |at: usize| self.has_grown(seen, &tokens, at);
        let begins = |is: &dyn Fn(usize) -> bool| is(newest) && (newest == 0 || !is(newest - 1));
        let now = tokens[newest];
        let what = if begins(&over) {
            format!("a request has {now} input tokens")
        } else if begins(&grown) {
            let turns = self.turns;
            format!(
                "a request has {now} input tokens, {} before {turns} turns, and nothing was \
                     changed or proven in between",
                tokens[newest - turns]
            )
        } else {
            return None;
        };
        Some(Found { call_id: None, what })
    }

    fn has_grown(&self, seen: &Seen<'_>, tokens: &[u64], at: usize) -> bool {
        let Some(from) = at.checked_sub(self.turns.max(1)) else { return false };
        let is_longer = self.times > 0
            && tokens[from] > 0
            && tokens[at] >= self.at_least
            && tokens[at] >= tokens[from].saturating_mul(self.times);
        is_longer && !comes_to_something(seen, from, at)
    }
}

/// Whether something was changed, or a check has said something that it had not.
fn comes_to_something(seen: &Seen<'_>, from: usize, to: usize) -> bool {
    let known: Vec<Evidence> =
        seen.laps[..from].iter().flat_map(Lap::checks).map(|(_, it)| it).collect();
    seen.laps[from..to]
        .iter()
        .any(|lap| lap.has_changed() || lap.checks().any(|(_, check)| !known.contains(&check)))
}
