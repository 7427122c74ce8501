//! What a turn leads to, as pure tables.
//!
//! Nothing here moves: each function is given the state and what is known besides, and says what
//! that means. The body performs it.

mod decision;
#[cfg(test)]
mod tests;

pub use decision::{Decision, NextAction};

use crate::agent::hook::StopDecision;
use crate::agent::{Limits, State, prompts};
use crate::error::{Error, ErrorKind};
use crate::event::{AppendReason, BudgetExceeded, EndReason, Transition};
use crate::item::{ItemKind, StopReason};
use crate::provider::should_fall_back;
use crate::turn::{PartialTurn, Turn};

/// What is known besides the state when something has to be decided.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[non_exhaustive]
pub struct Facts {
    /// The numbers.
    pub limits: Limits,
    /// Somebody waits to say something before the next request.
    pub has_steering: bool,
    /// Somebody waits to say something when the model stops by itself.
    pub has_follow_up: bool,
    /// A holder wants the run to stop at the next boundary.
    pub stop_requested: bool,
    /// The budget that is spent.
    pub exceeded_budget: Option<BudgetExceeded>,
    /// The budget that the calls of the last turn passed: the first ones ran, the others did not.
    pub call_limit_exceeded: Option<BudgetExceeded>,
    /// The turn that failed last broke off: asking again may help, and no provider has tried that already.
    pub has_incomplete_turn: bool,
    /// No request may be sent, not even a last one: the time is over, or the pool is spent.
    pub budget_exhausted: bool,
    /// The history can be made shorter, and was not yet.
    pub can_compact: bool,
    /// How many providers the agent can fall back to.
    pub fallback_count: usize,
    /// One more turn, without tools, is wanted when a limit is reached.
    pub has_wrap_up: bool,
}

/// Decides on a complete turn.
///
/// The calls of the turn decide, never the stop reason, which is only a veto.
pub fn decide(state: &State, turn: &Turn, facts: &Facts) -> Decision {
    use StopReason::{
        ContentFilter, ContextWindow, MaxTokens, Other, Pause, Refusal, Stop, ToolCalls,
    };

    if let Some(reason) = state.end.wrap_up_reason {
        return Decision::refuse_tools(prompts::NOT_RUN_DURING_WRAP_UP, NextAction::Finish(reason));
    }
    let limits = &facts.limits;
    let next = match (turn.stop_reason(), !turn.calls().is_empty()) {
        // Of too many calls the first ones run.
        (Stop | ToolCalls, true) => match facts.exceeded_budget {
            None => return Decision::RunTools,
            Some(exceeded) => {
                let next = facts.or_wrap_up(state, NextAction::Finish(EndReason::Budget));
                return Decision::refuse_tools(prompts::not_run_over_budget(&exceeded), next);
            }
        },
        (Stop | ToolCalls, false) if has_visible_content(turn) => return Decision::Stop,
        (Stop, false) if ends_with_tool_result(state) => return Decision::Stop,
        (Stop, false) => correct_or_finish(state, limits, prompts::EMPTY_REPLY.to_owned()),
        (ToolCalls, false) => NextAction::Finish(EndReason::Malformed),
        (MaxTokens, false) if state.streaks.continuations < limits.max_continuations => {
            NextAction::SendMessage {
                transition: Transition::MaxOutputTokensRecovery,
                append_reason: AppendReason::Continuation,
                text: prompts::CONTINUE_TRUNCATED.into(),
            }
        }
        (MaxTokens, true) if state.streaks.truncated_calls < limits.max_truncated_call_retries => {
            NextAction::Continue(Transition::MaxOutputTokensRecovery)
        }
        (MaxTokens, _) => NextAction::Finish(EndReason::Truncated),
        // A text would have to be continued, calls are asked for again.
        (ContextWindow, calls) if facts.can_compact && (calls || limits.max_continuations > 0) => {
            NextAction::Compact
        }
        (ContextWindow, _) => NextAction::Finish(EndReason::ContextWindow),
        (ContentFilter, _) => NextAction::Finish(EndReason::Filtered),
        (Refusal, _) => NextAction::Finish(EndReason::Refused),
        (Pause, _) => NextAction::Continue(Transition::PauseResumed),
        (Other(_), false) => return Decision::Stop,
        (Other(_), true) if state.streaks.retried_unknown_stop => {
            NextAction::Finish(EndReason::Malformed)
        }
        (Other(_), true) => NextAction::Continue(Transition::Corrective),
    };
    Decision::Continue(facts.apply_limit(state, next))
}

/// Decides on a turn that failed. `None` ends the run with the error.
pub fn on_error(state: &State, error: &Error, facts: &Facts) -> Option<NextAction> {
    let has_fallback = should_fall_back(error.kind())
        && state.model_selection.provider_index < facts.fallback_count;
    let next = match error.kind() {
        ErrorKind::ContextWindow if facts.can_compact => NextAction::Compact,
        // The model's own fault, and there is no call to answer.
        ErrorKind::GenerationFailed
            if state.streaks.malformed_replies < facts.limits.max_corrections =>
        {
            correct_or_finish(state, &facts.limits, prompts::undecodable_reply_prompt(error))
        }
        // A provider with another after it is given up at once.
        _ if has_fallback => NextAction::Continue(Transition::Fallback),
        _ if facts.has_incomplete_turn
            && state.streaks.turn_retries < facts.limits.max_turn_retries =>
        {
            NextAction::Continue(Transition::Retry)
        }
        _ => return None,
    };
    // A limit is no reason to hide what went wrong.
    facts.can_send_request(state).then_some(next)
}

/// Whether a turn that failed [broke off](Facts::incomplete_turn).
pub(in crate::agent) fn is_incomplete_turn(error: &Error) -> bool {
    let has_begun =
        PartialTurn::from_error(error).is_some_and(|partial| !partial.items().is_empty());
    // A generation that failed did not break off: the model is told what was wrong with it.
    error.kind() != ErrorKind::GenerationFailed
        && (has_begun || error.kind() == ErrorKind::IncompleteTurn)
        && error.is_retryable()
        && !error.are_retries_exhausted()
}

/// Decides when the calls of a turn have run. `state` has their answers.
pub fn after_tools(state: &State, pending: bool, facts: &Facts) -> NextAction {
    let limits = &facts.limits;
    let times = state.streaks.repeats.count();
    let repeated = |every: u32| times > 0 && times.is_multiple_of(every);
    let in_vain = limits.end_after_repeats > 0 && times >= limits.end_after_repeats;
    let next = match pending {
        true => NextAction::Finish(EndReason::Pending),
        false if facts.call_limit_exceeded.is_some() => {
            facts.or_wrap_up(state, NextAction::Finish(EndReason::Budget))
        }
        false if state.streaks.malformed_replies > limits.max_corrections => {
            NextAction::Finish(EndReason::Malformed)
        }
        false if in_vain => NextAction::Finish(EndReason::Repeating),
        false if repeated(limits.nudge_after_repeats) => NextAction::SendMessage {
            transition: Transition::NextTurn,
            append_reason: AppendReason::Nudge,
            text: prompts::REPEATED_CALLS.into(),
        },
        false => NextAction::Continue(Transition::NextTurn),
    };
    facts.apply_limit(state, next)
}

/// What those who may object to an end have said, in the order in which they are asked.
#[derive(Clone, Debug, PartialEq)]
pub enum StopReview {
    /// The answer is not what it must be.
    ValidationFailed(String),
    /// A stop hook blocks or prevents.
    HookDecision(StopDecision),
    /// The token target is not reached.
    Nudge(String),
    /// Nobody objects.
    Accept,
}

/// Decides when the model has stopped by itself.
pub fn at_stop(state: &State, said: StopReview, facts: &Facts) -> NextAction {
    let room = facts.can_send_request(state);
    let next = match said {
        // Whoever waits to be heard is heard before anybody judges the end.
        _ if facts.has_steering && room => NextAction::Continue(Transition::Steering),
        StopReview::ValidationFailed(what) => {
            correct_or_finish(state, &facts.limits, prompts::rejected_answer_prompt(&what))
        }
        StopReview::HookDecision(StopDecision::Block(text)) => NextAction::SendMessage {
            transition: Transition::StopHookBlocking,
            append_reason: AppendReason::StopHook,
            text: text.into(),
        },
        StopReview::HookDecision(StopDecision::RequireEvidence { text, .. })
            if room && !state.evidence.claim_rejected =>
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
        StopReview::Nudge(text) if room => NextAction::SendMessage {
            transition: Transition::Nudge,
            append_reason: AppendReason::Nudge,
            text: text.into(),
        },
        StopReview::HookDecision(StopDecision::Allow)
        | StopReview::Nudge(_)
        | StopReview::Accept
            if facts.has_follow_up && room =>
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
    /// Why no further request may be sent, if none may. The last turn, which wraps up, is allowed
    /// while anything is left: one of the turns is kept for it where it is wanted, but never the only
    /// one.
    pub(crate) fn limit_end_reason(&self, state: &State) -> Option<EndReason> {
        if self.stop_requested {
            Some(EndReason::Stopped)
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

    /// What comes in the place of a request, where none may be sent: the end, or the last turn.
    pub fn instead_of_request(&self, state: &State) -> Option<NextAction> {
        let end = NextAction::Finish(self.limit_end_reason(state)?);
        // A model that was never asked wants nothing more, unless calls of an earlier run were answered.
        Some(match state.counts.model_calls > 0 || ends_with_tool_result(state) {
            true => self.or_wrap_up(state, end),
            false => end,
        })
    }

    /// What is next within the limits: nothing is asked again when no request is left.
    fn apply_limit(&self, state: &State, next: NextAction) -> NextAction {
        match self.limit_end_reason(state) {
            Some(reason) if next.sends_request() => {
                self.or_wrap_up(state, NextAction::Finish(reason))
            }
            _ => next,
        }
    }

    /// What is next, or a last turn before it, where that is wanted and there is one left.
    fn or_wrap_up(&self, state: &State, next: NextAction) -> NextAction {
        match next {
            NextAction::Finish(reason @ (EndReason::Budget | EndReason::MaxTurns))
                if self.has_wrap_up
                    && !self.stop_requested
                    && state.counts.model_calls < self.limits.max_turns =>
            {
                NextAction::WrapUp(reason)
            }
            next => next,
        }
    }

    /// Whether the model may be asked again.
    pub(in crate::agent) fn can_send_request(&self, state: &State) -> bool {
        self.limit_end_reason(state).is_none() && state.end.wrap_up_reason.is_none()
    }
}

/// Corrects a reply that cannot be used, unless it is one too many.
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

/// Whether there is something in the turn for somebody to read.
fn has_visible_content(turn: &Turn) -> bool {
    turn.items().iter().any(|item| match &item.kind {
        ItemKind::Text { text } => !text.is_empty(),
        ItemKind::Other => true,
        ItemKind::System { .. }
        | ItemKind::User { .. }
        | ItemKind::Reasoning { .. }
        | ItemKind::ToolCall(_)
        | ItemKind::ToolResult(_) => false,
    })
}

/// Whether the newest entry is the result of a tool. An empty reply to it is a legal end.
pub(in crate::agent) fn ends_with_tool_result(state: &State) -> bool {
    state.history.live_newest_first().next().is_some_and(|item| item.as_tool_result().is_some())
}
