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
    /// The maximum number of requests; 20 by default.
    pub max_turns: u32,
    /// The number of unusable replies in a row that are corrected; 2 by default. The next unusable
    /// reply ends the run.
    pub max_corrections: u32,
    /// The maximum number of times in a row that the model is asked to continue a text that the
    /// output limit cut off; 3 by default. Typed and validated answers are never continued.
    pub max_continuations: u32,
    /// The maximum number of times in a row that the model is asked again after the output limit
    /// cut off its calls; 1 by default. Calls that were cut off are never run.
    pub max_truncated_call_retries: u32,
    /// The maximum number of incomplete turns in a row that are retracted and requested again,
    /// without a delay; 1 by default. Each retry counts as a request.
    ///
    /// A turn is incomplete if it failed after the model had started to answer, or if it ended
    /// without any output, and if another attempt of the same request may succeed. Failures before
    /// the model has started to answer are retried by the provider, with its own backoff. If the
    /// agent has an unused [fallback](crate::Agent::with_fallback), the turn is not retried, and
    /// the fallback is used instead. If the provider is a [`Retry`](crate::provider::Retry) that
    /// has already retried the turn, the agent does not retry the turn again.
    pub max_turn_retries: u32,
    /// The number of [repeated](crate::agent::RepeatCounter) iterations in a row after which the
    /// model is sent a message about the repetition; 4 by default, 0 for never. The message is sent
    /// again each time the same number of further iterations has repeated.
    ///
    /// All iterations of a repetition count, including those of the first cycle. A cycle of several
    /// iterations counts once it has been completed twice. If the number is 4, the message is sent
    /// after `A A A A` and after `A B A B`, but in `A B C A B C A B` only after the eighth
    /// iteration.
    pub nudge_after_repeats: u32,
    /// The number of repeated iterations in a row after which the run ends as
    /// [`Repeating`](crate::event::EndReason::Repeating); 24 by default, 0 for never. Iterations
    /// are counted as for `nudge_after_repeats`. The default is higher than that of `max_turns`, so
    /// that `max_turns` is reached first.
    pub end_after_repeats: u32,
    /// The maximum size of one turn in bytes, which is the sum of its text, reasoning and
    /// arguments; 64 MiB by default, `usize::MAX` for no limit. A larger turn is cut off: the run
    /// ends with an error of kind [`TooLarge`](crate::ErrorKind::TooLarge), and its history has the
    /// part of the turn that was received. A run with a turn of the maximum size uses about seven
    /// times this amount of memory.
    pub max_turn_bytes: usize,
    /// The maximum nesting depth of sub-agents; 8 by default, 0 for no sub-agents. The depth is
    /// counted from the outermost run, whose limit applies to all nested runs. If a call would [run
    /// agents](crate::Tool::runs_sub_agents) beyond the maximum depth, the call is
    /// [denied](crate::item::ResultKind::Denied), and the model receives the reason.
    ///
    /// Each nesting level uses stack space of the thread that polls the run, about 40 KiB in a
    /// debug build.
    pub max_depth: u32,
}

impl Limits {
    /// Returns the number of requests that may be sent before the wrap-up turn. If the wrap-up turn
    /// is enabled, one request is reserved for it, unless only one request is allowed.
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
