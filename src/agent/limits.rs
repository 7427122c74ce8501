//! The numeric limits of an agent's runs.

use crate::turn::TurnBuilder;

/// The numeric limits of a run: requests, corrections and retries, repeated iterations, the size of
/// a turn, and the nesting depth of sub-agents.
///
/// ```
/// use turnstream::agent::Limits;
///
/// let limits = Limits { max_turns: 5, ..Limits::default() };
/// assert_eq!(limits.max_corrections, 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of requests; 20 by default.
    pub max_turns: u32,
    /// How many unusable replies in a row are corrected; 2 by default. The next one ends the run.
    pub max_corrections: u32,
    /// How many times in a row a text that the output limit cut off is continued; 3 by default.
    /// Typed and validated answers are never continued.
    pub max_continuations: u32,
    /// How many times in a row the model is asked again after the output limit cut off its calls; 1
    /// by default. None of the cut-off calls is run.
    pub max_truncated_call_retries: u32,
    /// How many incomplete turns in a row are retracted and requested again, without a delay; 1 by
    /// default. Each retry counts as a request.
    ///
    /// A turn is incomplete if it failed after the model had started to answer, or ended without
    /// any output, and the same request may succeed. Failures before that point are retried by the
    /// provider, with its own backoff. If the agent has a [fallback](crate::Agent::with_fallback)
    /// that it has not used yet, it uses the fallback instead of a retry. An agent whose provider
    /// is a [`Retry`](crate::provider::Retry) that has already retried the turn does not retry it
    /// again.
    pub max_turn_retries: u32,
    /// After how many iterations in a row that [repeat](crate::agent::RepeatCounter) the model is
    /// sent a message that says so, and again after each further such number; 4 by default, 0 for
    /// never.
    ///
    /// All iterations of the row count, including those of the first cycle. A cycle of several
    /// iterations counts once it has been completed twice: with 4, the message is sent after
    /// `A A A A` and after `A B A B`, but in `A B C A B C A B` only after the eighth iteration.
    pub nudge_after_repeats: u32,
    /// The number of repeated iterations in a row, counted in the same way, after which the run
    /// ends as [`Repeating`](crate::event::EndReason::Repeating); 24 by default, so that the
    /// default `max_turns` is reached first, and 0 for never.
    pub end_after_repeats: u32,
    /// Maximum size of one turn in bytes, the sum of its text, reasoning and arguments; 64 MiB by
    /// default, `usize::MAX` for no limit. A larger turn is cut off: the run ends with an error of
    /// kind [`TooLarge`](crate::ErrorKind::TooLarge), and its history has the part that was
    /// received. A run with a turn of this size takes about seven times as much memory.
    pub max_turn_bytes: usize,
    /// How deep sub-agents may be nested; 8 by default, 0 for no sub-agents. Depth is counted from
    /// the outermost run, whose limit applies to all runs below it. A call of a tool that [runs
    /// agents](crate::Tool::runs_sub_agents) beyond the limit is
    /// [denied](crate::item::ResultKind::Denied), and the model receives the reason.
    ///
    /// Each level uses stack space of the thread that polls the run: about 40 KiB in a debug build.
    pub max_depth: u32,
}

impl Limits {
    /// The number of requests that may be sent before the wrap-up turn. If a wrap-up turn is
    /// enabled, one request is reserved for it, but never the only one.
    pub(super) fn turns_before_wrap_up(&self, wrap_up: bool) -> u32 {
        self.max_turns - u32::from(wrap_up && self.max_turns > 1)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_turns: 20,
            max_corrections: 2,
            max_continuations: 3,
            max_truncated_call_retries: 1,
            max_turn_retries: 1,
            nudge_after_repeats: 4,
            end_after_repeats: 24,
            max_turn_bytes: TurnBuilder::DEFAULT_MAX_BYTES,
            max_depth: 8,
        }
    }
}
