//! The numbers that decide.

use crate::turn::TurnBuilder;

/// How often something may happen before a run goes on in another way, how large a turn may be, and
/// how deep sub-agents may run inside one another.
///
/// ```
/// use turnstream::agent::Limits;
///
/// let limits = Limits { max_turns: 5, ..Limits::default() };
/// assert_eq!(limits.max_corrections, 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At most so many requests; 20 by default.
    pub max_turns: u32,
    /// So many replies in a row that cannot be used are corrected, 2 by default; the next one ends
    /// the run.
    pub max_corrections: u32,
    /// So often in a row a text that the output limit cut off is continued; 3 by default. A typed
    /// or validated answer never is.
    pub max_continuations: u32,
    /// So often in a row the model is asked again when the output limit cut off its calls, none of
    /// which runs then; 1 by default.
    pub max_truncated_call_retries: u32,
    /// How many turns in a row that broke off are retracted and asked for again, at once; 1 by default.
    /// Each counts as a request.
    ///
    /// A turn broke off if the model had begun its answer, or the answer ended without any, and the
    /// same request may succeed. What fails before that is retried by the provider, which waits between
    /// its attempts. An agent with a [fallback](crate::Agent::with_fallback) that was not asked yet
    /// asks that instead, and one above a [`Retry`](crate::provider::Retry) that has tried again such
    /// turns itself does not ask again.
    pub max_turn_retries: u32,
    /// The number of iterations in a row that [repeat](crate::agent::RepeatCounter) after which the model is told
    /// so, and told again after each further such number; 4 by default, 0 for never.
    ///
    /// All iterations of the row count, those of the first cycle included. A longer cycle than one counts
    /// from when it was completed a second time: with 4, the model is told after A A A A and after
    /// A B A B, but in A B C A B C A B only after the eighth.
    pub nudge_after_repeats: u32,
    /// The number of them, counted in the same way, after which the run ends as
    /// [`Repeating`](crate::event::EndReason::Repeating); 24 by default, so that the default cap on turns
    /// comes first, and 0 for never.
    pub end_after_repeats: u32,
    /// How many bytes of text, reasoning and arguments one turn may have together; 64 MiB by default,
    /// `usize::MAX` for any number. A larger turn is cut off there: the run ends with an error of kind
    /// [`TooLarge`](crate::ErrorKind::TooLarge), and what came until then is in its history. A run
    /// whose turn is as large takes about seven times as much memory.
    pub max_turn_bytes: usize,
    /// How many sub-agents may run inside one another; 8 by default, 0 for none. It is counted from the
    /// run that the program began, whose limit holds for all below it. A call of a tool that [runs
    /// agents](crate::Tool::runs_sub_agents) beyond it is [denied](crate::item::ResultKind::Denied), and
    /// the model is told why.
    ///
    /// Each level takes stack where the run is polled: about 40 KiB in a debug build.
    pub max_depth: u32,
}

impl Limits {
    /// How many requests may be sent before the last turn, for which one is kept where it is wanted,
    /// but never the only one.
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
