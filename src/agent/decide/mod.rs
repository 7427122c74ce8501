//! Pure functions that decide the next action after a turn.
//!
//! Each function takes the run's state, along with facts that are not part of the state, and
//! returns a decision. The functions have no side effects; the agent's loop carries out the
//! decision.

mod decision;
#[cfg(test)]
mod tests;

pub use decision::{Decision, NextAction};

use crate::agent::hook::StopDecision;
use crate::agent::phase::refused_reasoning::reasoning_removal;
use crate::agent::{Limits, State, prompts};
use crate::error::{Error, ErrorKind};
use crate::event::{AppendReason, BudgetExceeded, EndReason, InterruptedPhase, Transition};
use crate::item::{Item, ItemKind, StopReason};
use crate::provider::{is_model_output, should_fall_back, unanswered_client_call};
use crate::request::{ClientTool, ToolSpecs};
use crate::turn::{PartialTurn, Turn};

/// The facts that a decision needs in addition to the state.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
#[non_exhaustive]
pub struct Facts {
    /// The run's numeric limits.
    pub limits: Limits,
    /// Whether steering input is queued for the next request.
    pub has_steering: bool,
    /// Whether follow-up input is queued, to be sent when the model stops on its own.
    pub has_follow_up: bool,
    /// Whether `stop_after_turn` was called, by the run's owner or through a handle.
    pub stop_requested: bool,
    /// The phase in which the [model was interrupted](crate::RunHandle::interrupt_turn), if it was
    /// and the interrupted turn has not ended yet, or no turn was streaming.
    pub turn_interrupted: Option<InterruptedPhase>,
    /// The budget limit that has been exceeded, if any.
    pub exceeded_budget: Option<BudgetExceeded>,
    /// The limit on tool calls, if the last turn exceeded the limit and some of its calls were
    /// therefore not run.
    pub call_limit_exceeded: Option<BudgetExceeded>,
    /// Whether the last failed turn was incomplete, may succeed if it is requested again, and has
    /// not already been retried by a provider.
    pub has_incomplete_turn: bool,
    /// Whether no further request may be sent, even for a wrap-up turn, because the time limit has
    /// been reached or the pool is exhausted.
    pub budget_exhausted: bool,
    /// Whether the history can be compacted. The value is `false` if the history was already
    /// compacted because a request exceeded the model's context window.
    pub can_compact: bool,
    /// The number of the agent's fallback providers.
    pub fallback_count: usize,
    /// Whether a wrap-up turn without tools follows when a limit is reached.
    pub has_wrap_up: bool,
    /// The number of consecutive [fixes that have failed](Limits::end_after_failed_fixes), or 0 if
    /// it has no limit.
    pub failed_fixes: u32,
    /// The tools that the model was last offered.
    pub tools: ToolSpecs,
}

/// Decides the next action after a complete turn.
///
/// Any tool calls in the turn are run, unless the stop reason does not allow calls to run.
pub fn decide(state: &State, turn: &Turn, facts: &Facts) -> Decision {
    use StopReason::{
        ContentFilter, ContextWindow, Interrupted, MaxTokens, Other, Pause, Refusal, Stop,
        ToolCalls,
    };
    use TurnContent::{Answer, Calls, Nothing};

    if let Some(reason) = state.end.wrap_up_reason {
        return Decision::refuse_tools(prompts::NOT_RUN_DURING_WRAP_UP, NextAction::Finish(reason));
    }
    if let Some(kind) = unanswered_client_call(turn.items()) {
        return Decision::Fail(client_call_error(&kind));
    }
    let limits = &facts.limits;
    let next = match (turn.stop_reason(), TurnContent::of(turn)) {
        // If the limit on tool calls allows only some of the calls, the first ones are run.
        (Stop | ToolCalls, Calls) => match facts.exceeded_budget {
            None => return Decision::RunTools,
            Some(exceeded) => {
                let next = facts.or_wrap_up(state, NextAction::Finish(EndReason::Budget));
                return Decision::refuse_tools(prompts::not_run_over_budget(&exceeded), next);
            }
        },
        // The text of a turn that ended for an unknown reason may be incomplete, so the outcome of
        // the run is marked as partial.
        (Stop | ToolCalls | Other(_), Answer) => return Decision::Stop,
        (Stop, Nothing) if ends_with_tool_result(state) => return Decision::Stop,
        (Stop | Other(_), Nothing) => {
            correct_or_finish(state, limits, prompts::EMPTY_REPLY.to_owned())
        }
        (ToolCalls, Nothing) => NextAction::Finish(EndReason::Malformed),
        (MaxTokens, Answer | Nothing) if state.streaks.continuations < limits.max_continuations => {
            NextAction::SendMessage {
                transition: Transition::MaxOutputTokensRecovery,
                append_reason: AppendReason::Continuation,
                text: prompts::CONTINUE_TRUNCATED.into(),
            }
        }
        (MaxTokens, Calls) if state.streaks.truncated_calls < limits.max_truncated_call_retries => {
            NextAction::Continue(Transition::MaxOutputTokensRecovery)
        }
        (MaxTokens, _) => NextAction::Finish(EndReason::Truncated),
        // After compaction, truncated text must be continued, whereas truncated calls are requested
        // again.
        (ContextWindow, content)
            if facts.can_compact && (content == Calls || limits.max_continuations > 0) =>
        {
            NextAction::Compact
        }
        (ContextWindow, _) => NextAction::Finish(EndReason::ContextWindow),
        (ContentFilter, _) => NextAction::Finish(EndReason::Filtered),
        (Refusal, _) => NextAction::Finish(EndReason::Refused),
        (Pause, _) => NextAction::Continue(Transition::PauseResumed),
        (Interrupted, _) if facts.has_steering => NextAction::Continue(Transition::Steering),
        (Interrupted, _) if facts.has_follow_up => NextAction::Continue(Transition::FollowUp),
        (Interrupted, _) => NextAction::Finish(EndReason::Interrupted(InterruptedPhase::Streaming)),
        (Other(_), Calls) if state.streaks.retried_unknown_stop => {
            NextAction::Finish(EndReason::Malformed)
        }
        (Other(_), Calls) => NextAction::Continue(Transition::Corrective),
    };
    Decision::Continue(facts.apply_limit(state, next))
}

/// Decides the next action after a failed turn. Returns `None` if the run ends with the error.
pub fn on_error(state: &State, error: &Error, facts: &Facts) -> Option<NextAction> {
    let has_fallback = should_fall_back(error.kind())
        && state.model_selection.provider_index < facts.fallback_count;
    let next = match error.kind() {
        // The provider may have run the call of an MCP server that the request approves, and would
        // run it again.
        _ if !error.is_refusal() && ClientTool::has_new_approval(&state.history) => {
            has_fallback.then_some(NextAction::Continue(Transition::Fallback))?
        }
        ErrorKind::ContextWindow if facts.can_compact => NextAction::Compact,
        // If the request was already sent without the reasoning, a further attempt would not help.
        ErrorKind::ReasoningRefused
            if state.transition != Some(Transition::ReasoningRefused)
                && reasoning_removal(&state.history, &state.model_selection.model).is_some() =>
        {
            NextAction::Continue(Transition::ReasoningRefused)
        }
        // The model caused the error, but there is no call that could be given an error result.
        ErrorKind::GenerationFailed
            if state.streaks.malformed_replies < facts.limits.max_corrections =>
        {
            let text = prompts::undecodable_reply_prompt(error, &facts.tools);
            correct_or_finish(state, &facts.limits, text)
        }
        // If an unused fallback is available, it is used instead of retrying with the same
        // provider.
        _ if has_fallback => NextAction::Continue(Transition::Fallback),
        _ if facts.has_incomplete_turn
            && state.streaks.turn_retries < facts.limits.max_turn_retries =>
        {
            NextAction::Continue(Transition::Retry)
        }
        _ => return None,
    };
    // If no further request is allowed, the run ends with the error, not with the limit.
    facts.can_send_request(state).then_some(next)
}

/// Returns whether a failed turn was [incomplete](Facts::has_incomplete_turn).
pub(in crate::agent) fn is_incomplete_turn(error: &Error) -> bool {
    let has_begun =
        error.find_source::<PartialTurn>().is_some_and(|partial| !partial.items().is_empty());
    // A failed generation is not retried. Instead, the model receives the error and is asked to
    // correct it.
    error.kind() != ErrorKind::GenerationFailed
        && (has_begun || error.kind() == ErrorKind::IncompleteTurn)
        && error.is_retryable()
        && !error.are_retries_exhausted()
}

/// Decides the next action once a turn's tool calls have results. `state` must already include the
/// results.
pub fn after_tools(state: &State, pending: bool, facts: &Facts) -> NextAction {
    let limits = &facts.limits;
    let times = state.streaks.repeats.count();
    let repeated = |every: u32| times > 0 && times.is_multiple_of(every);
    let in_vain = limits.end_after_repeats > 0 && times >= limits.end_after_repeats;
    let max_fixes = limits.end_after_failed_fixes;
    let has_failed = max_fixes > 0 && facts.failed_fixes >= max_fixes;
    let next = match pending {
        true => NextAction::Finish(EndReason::Pending),
        false if facts.call_limit_exceeded.is_some() => {
            facts.or_wrap_up(state, NextAction::Finish(EndReason::Budget))
        }
        false if state.streaks.malformed_replies > limits.max_corrections => {
            NextAction::Finish(EndReason::Malformed)
        }
        false if in_vain || has_failed => NextAction::Finish(EndReason::Repeating),
        false if repeated(limits.nudge_after_repeats) => NextAction::SendMessage {
            transition: Transition::NextTurn,
            append_reason: AppendReason::Nudge,
            text: prompts::REPEATED_CALLS.into(),
        },
        false => NextAction::Continue(Transition::NextTurn),
    };
    facts.apply_limit(state, next)
}

/// The result of the checks that run after the model has stopped on its own: the first objection,
/// if any.
#[derive(Clone, Debug, PartialEq)]
pub enum StopReview {
    /// Validation rejected the answer with this message.
    ValidationFailed(String),
    /// The stop hooks or the evidence policy returned this decision.
    HookDecision(StopDecision),
    /// The token target has not been reached, and this text is sent to the model.
    Nudge(String),
    /// All checks passed.
    Accept,
}

/// Decides the next action after the model has stopped on its own.
pub fn at_stop(state: &State, review: StopReview, facts: &Facts) -> NextAction {
    let can_send = facts.can_send_request(state);
    let next = match review {
        // Steering input is delivered before any objection is considered.
        _ if facts.has_steering && can_send => NextAction::Continue(Transition::Steering),
        StopReview::ValidationFailed(what) => {
            correct_or_finish(state, &facts.limits, prompts::rejected_answer_prompt(&what))
        }
        StopReview::HookDecision(StopDecision::Continue(text)) => NextAction::SendMessage {
            transition: Transition::StopHookBlocking,
            append_reason: AppendReason::StopHook,
            text: text.into(),
        },
        StopReview::HookDecision(StopDecision::RequireEvidence { text, .. })
            if can_send && !state.evidence.claim_rejected =>
        {
            NextAction::SendMessage {
                transition: Transition::StopHookBlocking,
                append_reason: AppendReason::StopHook,
                text: text.into(),
            }
        }
        StopReview::HookDecision(StopDecision::EndRun(_)) => {
            NextAction::Finish(EndReason::StopHookPrevented)
        }
        StopReview::HookDecision(StopDecision::Blocked(_)) => {
            NextAction::Finish(EndReason::Blocked)
        }
        StopReview::HookDecision(
            StopDecision::Unproven(_) | StopDecision::RequireEvidence { .. },
        ) => NextAction::Finish(EndReason::Unproven),
        StopReview::Nudge(text) if can_send => NextAction::SendMessage {
            transition: Transition::Nudge,
            append_reason: AppendReason::Nudge,
            text: text.into(),
        },
        StopReview::HookDecision(StopDecision::Allow)
        | StopReview::Nudge(_)
        | StopReview::Accept
            if facts.has_follow_up && can_send =>
        {
            NextAction::Continue(Transition::FollowUp)
        }
        StopReview::HookDecision(StopDecision::Allow)
        | StopReview::Nudge(_)
        | StopReview::Accept => NextAction::Finish(EndReason::Completed),
    };
    facts.apply_limit(state, next)
}

impl Facts {
    /// Returns the reason why no further request may be sent, or `None` if another request may be
    /// sent. A wrap-up turn is allowed until the budget is exhausted. If wrap-up turns are enabled,
    /// one request is reserved for such a turn, unless only one request is allowed.
    pub(crate) fn limit_end_reason(&self, state: &State) -> Option<EndReason> {
        if self.stop_requested {
            Some(EndReason::Stopped)
        } else if let Some(phase) = self.turn_interrupted
            && !self.has_steering
            && !self.has_follow_up
        {
            Some(EndReason::Interrupted(phase))
        } else if state.end.wrap_up_reason.is_some() {
            self.budget_exhausted.then_some(EndReason::Budget)
        } else if self.exceeded_budget.is_some() {
            Some(EndReason::Budget)
        } else if state.counts.model_calls >= self.limits.turns_before_wrap_up(self.has_wrap_up) {
            Some(EndReason::MaxTurns)
        } else {
            None
        }
    }

    /// If no further request may be sent, returns the action to take instead: ending the run or
    /// starting a wrap-up turn. Otherwise, returns `None`.
    pub fn instead_of_request(&self, state: &State) -> Option<NextAction> {
        if self.is_follow_up_due(state) && self.can_send_request(state) {
            return Some(NextAction::Continue(Transition::FollowUp));
        }
        let end = NextAction::Finish(self.limit_end_reason(state)?);
        // A wrap-up turn requires a preceding turn in this run, or answered calls from an earlier
        // run.
        Some(match state.counts.model_calls > 0 || ends_with_tool_result(state) {
            true => self.or_wrap_up(state, end),
            false => end,
        })
    }

    /// Returns whether an interrupt of the model makes a follow-up due.
    fn is_follow_up_due(&self, state: &State) -> bool {
        let waits = self.has_follow_up && !self.has_steering && !state.follow_up_due;
        self.turn_interrupted.is_some() && waits
    }

    /// Returns the action unchanged if the limits allow it. If no further request may be sent,
    /// returns an action that ends the run or starts a wrap-up turn instead.
    fn apply_limit(&self, state: &State, next: NextAction) -> NextAction {
        match self.limit_end_reason(state) {
            Some(reason) if next.sends_request() => {
                self.or_wrap_up(state, NextAction::Finish(reason))
            }
            _ => next,
        }
    }

    /// Replaces the end of the run with a wrap-up turn, if wrap-up turns are enabled and another
    /// request is allowed.
    fn or_wrap_up(&self, state: &State, next: NextAction) -> NextAction {
        match next {
            NextAction::Finish(reason @ (EndReason::Budget | EndReason::MaxTurns))
                if self.has_wrap_up
                    && !self.stop_requested
                    && self.turn_interrupted.is_none()
                    && state.counts.model_calls < self.limits.max_turns_or_default() =>
            {
                NextAction::WrapUp(reason)
            }
            next => next,
        }
    }

    /// Returns whether another request may be sent.
    pub(in crate::agent) fn can_send_request(&self, state: &State) -> bool {
        self.limit_end_reason(state).is_none() && state.end.wrap_up_reason.is_none()
    }
}

/// Returns an action that asks the model to correct an unusable reply, or that ends the run after
/// too many unusable replies.
fn correct_or_finish(state: &State, limits: &Limits, what: String) -> NextAction {
    match state.streaks.malformed_replies < limits.max_corrections {
        true => NextAction::SendMessage {
            transition: Transition::Corrective,
            append_reason: AppendReason::Corrective,
            text: what.into(),
        },
        false => NextAction::Finish(EndReason::Malformed),
    }
}

/// The content of a turn, as far as it determines what the end of the turn means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TurnContent {
    /// The model made tool calls, possibly in addition to text.
    Calls,
    /// The model made no call, and wrote text or produced something else that a user can see.
    Answer,
    /// The turn contains at most white space, reasoning and metadata.
    Nothing,
}

impl TurnContent {
    fn of(turn: &Turn) -> Self {
        let is_answer = |item: &Item| match &item.kind {
            ItemKind::Text { text } => !text.trim().is_empty(),
            ItemKind::Other => item.provider_data.as_deref().is_some_and(is_model_output),
            ItemKind::System { .. }
            | ItemKind::User { .. }
            | ItemKind::Reasoning { .. }
            | ItemKind::ToolCall(_)
            | ItemKind::ToolResult(_) => false,
        };
        match turn.calls().is_empty() {
            false => Self::Calls,
            true if turn.items().iter().any(is_answer) => Self::Answer,
            true => Self::Nothing,
        }
    }
}

/// Creates the error for a call that is not a call of one of the agent's tools and that only the
/// client can answer. `kind` is the provider's name for the kind of call.
fn client_call_error(kind: &str) -> Error {
    let message =
        format!("the model answered with a `{kind}`, which an agent does not know how to answer");
    Error::new(ErrorKind::Unsupported, message).with_parameter("tools")
}

/// Returns whether the latest item is a tool result. A run may end with an empty reply to a tool
/// result.
pub(in crate::agent) fn ends_with_tool_result(state: &State) -> bool {
    state.history.live_newest_first().next().is_some_and(|item| item.as_tool_result().is_some())
}
