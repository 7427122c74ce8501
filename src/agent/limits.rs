//! Defines the numeric limits for an agent's runs.

use std::time::Duration;

use crate::turn::TurnBuilder;

/// The default maximum number of requests of a run that is not a sub-agent's.
const DEFAULT_MAX_TURNS: u32 = 20;

/// The numeric limits for a run: the maximum number of requests, corrections, retries and repeated
/// iterations, the maximum size of a turn, the maximum nesting depth of sub-agents, and timeouts.
///
/// The timeouts use tokio's timer. Outside a tokio runtime, a default timeout does not apply. If a
/// timeout is set explicitly, then outside a tokio runtime an operation fails unless its future is
/// ready when first polled. [`Timeouts::NEVER`](crate::http::Timeouts::NEVER) disables a timeout.
///
/// ```
/// use turnstream::agent::Limits;
/// use turnstream::{Agent, provider::Scripted};
///
/// let limits = Limits { max_turns: Some(5), ..Limits::default() };
/// assert_eq!(limits.max_corrections, 2);
/// let agent = Agent::new(Scripted::new(["Hello!"])).with_limits(limits);
/// # drop(agent);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of requests. `None` means 20, or 80 for a sub-agent. If the maximum is 0,
    /// no request is sent. Requests that correct, continue or retry a turn also count.
    pub max_turns: Option<u32>,
    /// The maximum number of consecutive unusable replies that the model is asked to correct. The
    /// default is 2. After the maximum number of corrections, the next unusable reply ends the run
    /// with the reason [`Malformed`](crate::event::EndReason::Malformed). Empty replies, replies
    /// that a [validation](crate::Agent::with_validation) rejects, and replies whose calls all
    /// failed to start count as unusable.
    pub max_corrections: u32,
    /// The maximum number of times in a row that the model is asked to continue text that was cut
    /// off by the output limit. The default is 3. Typed and validated answers are never continued.
    pub max_continuations: u32,
    /// The maximum number of times in a row that the model is asked again after its calls were cut
    /// off by the output limit. The default is 1. Calls that were cut off are never run.
    pub max_truncated_call_retries: u32,
    /// The maximum number of consecutive incomplete turns that are retracted and immediately
    /// requested again. The default is 1. Each retry counts as a request.
    ///
    /// A turn is incomplete if another attempt at the same request may succeed, and the turn either
    /// ended without any output or failed after the model had started to answer. The provider,
    /// using its own backoff, retries failures that occur before the model has started to answer.
    /// If the agent has an unused [fallback](crate::Agent::with_fallback), the fallback is used
    /// instead of retrying the turn. If the provider is a [`Retry`](crate::provider::Retry) that
    /// has already retried the turn, the agent does not retry it again.
    pub max_turn_retries: u32,
    /// The number of turns for which a [tool choice](crate::request::Options::tool_choice) that
    /// requires a call applies. The default is 1: once a turn's calls have been answered, all later
    /// requests of the run let the model decide. Otherwise, a model that obeys would call tools
    /// until `max_turns` is reached. `u32::MAX` keeps the requirement for the whole run. If the run
    /// resumes calls, their turn counts. A tool choice that a hook sets applies whenever the hook
    /// sets it.
    pub forced_tool_turns: u32,
    /// The number of consecutive repeated iterations after which a message about the repetition is
    /// sent to the model. An iteration is a turn whose calls have been answered. It repeats an
    /// earlier one if it has the same calls and results as the iteration one cycle earlier, where a
    /// cycle consists of one to four iterations. The default is 4; 0 disables the message.
    /// While the repetition continues, the message is sent again each time this number of further
    /// iterations has been repeated.
    ///
    /// All iterations of a repetition are counted, including those of the first cycle. A cycle of
    /// several iterations is counted only after it has been completed twice. If this limit is 4,
    /// the message is sent after `A A A A` and after `A B A B`, but in `A B C A B C A B` only after
    /// the eighth iteration.
    pub nudge_after_repeats: u32,
    /// The number of consecutive repeated iterations after which the run ends with the reason
    /// [`Repeating`](crate::event::EndReason::Repeating). The default is 24; 0 disables this limit.
    /// Iterations are counted in the same way as for `nudge_after_repeats`. With the default
    /// settings, `max_turns` is lower, and is therefore reached first.
    pub end_after_repeats: u32,
    /// The number of consecutive failed fixes after which the run ends with the reason
    /// [`Repeating`](crate::event::EndReason::Repeating). The default is 0, which disables this
    /// limit. A fix is a change that a tool [records](crate::tool::ToolContext::record_change). It
    /// has failed if the next recorded [check](crate::item::Evidence) does not pass. Several
    /// changes before a check count as one fix, and a check that passes resets the count. The
    /// [evidence policy](crate::agent::evidence::RequireEvidence::verdict) decides what is a change
    /// and what is a check that passes, or its default if the agent has none.
    pub end_after_failed_fixes: u32,
    /// The maximum total size, in bytes, of the text, reasoning and arguments in a turn. The
    /// default is 64 MiB; `usize::MAX` disables the limit. A larger turn is cut off: the run ends
    /// with an error of the kind [`TooLarge`](crate::ErrorKind::TooLarge), and the run's history
    /// contains the part of the turn that was received. Receiving a turn of the maximum size uses
    /// about seven times that size in memory.
    pub max_turn_bytes: usize,
    /// The maximum nesting depth of sub-agents. The default is 8; 0 prevents all sub-agents from
    /// running. The depth is counted from the outermost run, whose limit applies to all nested
    /// runs. If a call would [run agents](crate::Tool::running_sub_agents) beyond the maximum
    /// depth, the call is [denied](crate::item::ResultKind::Denied), and the model receives the
    /// reason.
    ///
    /// Each nesting level uses stack space on the thread that polls the run: about 40 KiB in a
    /// debug build.
    pub max_depth: u32,
    /// The timeout for each hook call, both for hooks that make decisions and for the futures
    /// returned by hooks that only observe. `None` means 30 seconds.
    pub hook_timeout: Option<Duration>,
    /// The timeout for each listing of a [tool source](crate::Agent::with_tool_source). `None`
    /// means 30 seconds.
    pub tool_source_timeout: Option<Duration>,
    /// The timeout for the [compactor](crate::Agent::with_compactor). `None` means 120 seconds. If
    /// the compactor exceeds the timeout, its future is dropped, and the compaction fails.
    pub compactor_timeout: Option<Duration>,
    /// The time from which on a single poll of a tool is reported to the hooks; see
    /// [`on_long_poll`](crate::agent::hook::Hook::on_long_poll). The default is 100 ms.
    pub long_poll: Duration,
}

impl Limits {
    /// Returns the maximum number of requests of a run that is not a sub-agent's.
    pub(super) fn max_turns_or_default(&self) -> u32 {
        self.max_turns.unwrap_or(DEFAULT_MAX_TURNS)
    }

    /// Returns the number of requests that may be sent before the wrap-up turn. If the wrap-up turn
    /// is enabled, one request is reserved for it, unless only one request is allowed.
    pub(super) fn turns_before_wrap_up(&self, wrap_up: bool) -> u32 {
        let max_turns = self.max_turns_or_default();
        max_turns - u32::from(wrap_up && max_turns > 1)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_turns: None,
            max_corrections: 2,
            max_continuations: 3,
            max_truncated_call_retries: 1,
            max_turn_retries: 1,
            forced_tool_turns: 1,
            nudge_after_repeats: 4,
            end_after_repeats: 24,
            end_after_failed_fixes: 0,
            max_turn_bytes: TurnBuilder::DEFAULT_MAX_BYTES,
            max_depth: 8,
            hook_timeout: None,
            tool_source_timeout: None,
            compactor_timeout: None,
            long_poll: Duration::from_millis(100),
        }
    }
}
