//! What a turn leads to, as pure tables.
//!
//! Nothing here moves: each function is given the state and what is known besides, and says what
//! that means. The body performs it.

mod next;
#[cfg(test)]
mod tests;

pub use next::{Decision, Next};

use crate::agent::hook::OnStop;
use crate::agent::{Limits, State, words};
use crate::error::{Error, ErrorKind};
use crate::event::{AppendedWhy, Exceeded, Reason, Transition};
use crate::item::{ItemKind, StopReason};
use crate::provider::another_could;
use crate::turn::{PartialTurn, Turn};

/// What is known besides the state when something has to be decided.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[non_exhaustive]
pub struct Facts {
    /// The numbers.
    pub limits: Limits,
    /// Somebody waits to say something before the next request.
    pub steered: bool,
    /// Somebody waits to say something when the model stops by itself.
    pub follow_up: bool,
    /// A holder wants the run to stop at the next boundary.
    pub stopping: bool,
    /// The budget that is spent.
    pub exceeded: Option<Exceeded>,
    /// The budget that the calls of the last turn passed: the first ones ran, the others did not.
    pub too_many_calls: Option<Exceeded>,
    /// The turn that failed last broke off: asking again may help, and no provider has tried that already.
    pub broke_off: bool,
    /// No request may be sent, not even a last one: the time is over, or the pool is spent.
    pub nothing_left: bool,
    /// The history can be made shorter, and was not yet.
    pub can_compact: bool,
    /// How many providers the agent can fall back to.
    pub fallbacks: usize,
    /// One more turn, without tools, is wanted when a limit is reached.
    pub wrap_up: bool,
}

/// Decides on a complete turn.
///
/// The calls of the turn decide, never the stop reason, which is only a veto.
pub fn decide(state: &State, turn: &Turn, facts: &Facts) -> Decision {
    use StopReason::{
        ContentFilter, ContextWindow, MaxTokens, Other, Pause, Refusal, Stop, ToolCalls,
    };

    if let Some(reason) = state.ending.wrapping_up {
        return Decision::refuse(words::WRAPPING_UP, Next::Finish(reason));
    }
    let limits = &facts.limits;
    let next = match (turn.stop_reason(), !turn.calls().is_empty()) {
        // Of too many calls the first ones run.
        (Stop | ToolCalls, true) => match facts.exceeded {
            None => return Decision::RunTools,
            Some(exceeded) => {
                let next = facts.or_wrap_up(state, Next::Finish(Reason::Budget));
                return Decision::refuse(words::out_of_budget(&exceeded), next);
            }
        },
        (Stop | ToolCalls, false) if speaks(turn) => return Decision::Stop,
        (Stop, false) if answers_tools(state) => return Decision::Stop,
        (Stop, false) => correct(state, limits, words::EMPTY_REPLY.to_owned()),
        (ToolCalls, false) => Next::Finish(Reason::Malformed),
        (MaxTokens, false) if state.streaks.recovery_count < limits.continuations => Next::Say {
            transition: Transition::MaxOutputTokensRecovery,
            why: AppendedWhy::Continuation,
            text: words::CUT_OFF.into(),
        },
        (MaxTokens, true) if state.streaks.cut_calls < limits.cut_calls => {
            Next::Continue(Transition::MaxOutputTokensRecovery)
        }
        (MaxTokens, _) => Next::Finish(Reason::Truncated),
        // A text would have to be continued, calls are asked for again.
        (ContextWindow, calls) if facts.can_compact && (calls || limits.continuations > 0) => {
            Next::Compact
        }
        (ContextWindow, _) => Next::Finish(Reason::ContextWindow),
        (ContentFilter, _) => Next::Finish(Reason::Filtered),
        (Refusal, _) => Next::Finish(Reason::Refused),
        (Pause, _) => Next::Continue(Transition::PauseResumed),
        (Other(_), false) => return Decision::Stop,
        (Other(_), true) if state.streaks.asked_again => Next::Finish(Reason::Malformed),
        (Other(_), true) => Next::Continue(Transition::Corrective),
    };
    Decision::Then(facts.limit(state, next))
}

/// Decides on a turn that failed. `None` ends the run with the error.
pub fn on_error(state: &State, error: &Error, facts: &Facts) -> Option<Next> {
    let has_fallback = another_could(error.kind()) && state.asked.provider < facts.fallbacks;
    let next = match error.kind() {
        ErrorKind::ContextWindow if facts.can_compact => Next::Compact,
        // The model's own fault, and there is no call to answer.
        ErrorKind::GenerationFailed if state.streaks.malformed < facts.limits.corrections => {
            correct(state, &facts.limits, words::unreadable(error))
        }
        // A provider with another after it is given up at once.
        _ if has_fallback => Next::Continue(Transition::Fallback),
        _ if facts.broke_off && state.streaks.retries < facts.limits.retries => {
            Next::Continue(Transition::Retry)
        }
        _ => return None,
    };
    // A limit is no reason to hide what went wrong.
    facts.has_room(state).then_some(next)
}

/// Whether a turn that failed [broke off](Facts::broke_off).
pub(in crate::agent) fn broke_off(error: &Error) -> bool {
    let has_begun = PartialTurn::of(error).is_some_and(|partial| !partial.items().is_empty());
    // A generation that failed did not break off: the model is told what was wrong with it.
    error.kind() != ErrorKind::GenerationFailed
        && (has_begun || error.kind() == ErrorKind::IncompleteTurn)
        && error.is_retryable()
        && !error.are_retries_exhausted()
}

/// Decides when the calls of a turn have run. `state` has their answers.
pub fn after_tools(state: &State, pending: bool, facts: &Facts) -> Next {
    let limits = &facts.limits;
    let times = state.streaks.repeats.times();
    let repeated = |every: u32| times > 0 && times.is_multiple_of(every);
    let in_vain = limits.repeats_end > 0 && times >= limits.repeats_end;
    let next = match pending {
        true => Next::Finish(Reason::Pending),
        false if facts.too_many_calls.is_some() => {
            facts.or_wrap_up(state, Next::Finish(Reason::Budget))
        }
        false if state.streaks.malformed > limits.corrections => Next::Finish(Reason::Malformed),
        false if in_vain => Next::Finish(Reason::Repeating),
        false if repeated(limits.repeats_nudge) => Next::Say {
            transition: Transition::NextTurn,
            why: AppendedWhy::Nudge,
            text: words::REPEATED.into(),
        },
        false => Next::Continue(Transition::NextTurn),
    };
    facts.limit(state, next)
}

/// What those who may object to an end have said, in the order in which they are asked.
#[derive(Clone, Debug, PartialEq)]
pub enum AtStop {
    /// The answer is not what it must be.
    Objection(String),
    /// A stop hook blocks or prevents.
    Hook(OnStop),
    /// The token target is not reached.
    Nudge(String),
    /// Nobody objects.
    Fine,
}

/// Decides when the model has stopped by itself.
pub fn at_stop(state: &State, said: AtStop, facts: &Facts) -> Next {
    let room = facts.has_room(state);
    let next = match said {
        // Whoever waits to be heard is heard before anybody judges the end.
        _ if facts.steered && room => Next::Continue(Transition::Steering),
        AtStop::Objection(what) => correct(state, &facts.limits, words::rejected(&what)),
        AtStop::Hook(OnStop::Block(text)) => Next::Say {
            transition: Transition::StopHookBlocking,
            why: AppendedWhy::StopHook,
            text: text.into(),
        },
        AtStop::Hook(OnStop::Prove { text, .. }) if room && !state.claims.sent_back => Next::Say {
            transition: Transition::StopHookBlocking,
            why: AppendedWhy::StopHook,
            text: text.into(),
        },
        AtStop::Hook(OnStop::Prevent(_)) => Next::Finish(Reason::StopHookPrevented),
        AtStop::Hook(OnStop::Blocked(_)) => Next::Finish(Reason::Blocked),
        AtStop::Hook(OnStop::Unproven(_) | OnStop::Prove { .. }) => Next::Finish(Reason::Unproven),
        AtStop::Nudge(text) if room => {
            Next::Say { transition: Transition::Nudge, why: AppendedWhy::Nudge, text: text.into() }
        }
        AtStop::Hook(OnStop::LetGo) | AtStop::Nudge(_) | AtStop::Fine
            if facts.follow_up && room =>
        {
            Next::Continue(Transition::FollowUp)
        }
        AtStop::Hook(OnStop::LetGo) | AtStop::Nudge(_) | AtStop::Fine => {
            Next::Finish(Reason::Completed)
        }
    };
    facts.limit(state, next)
}

impl Facts {
    /// Why no further request may be sent, if none may. The last turn, which wraps up, is allowed
    /// while anything is left: one of the turns is kept for it where it is wanted, but never the only
    /// one.
    pub fn at_limit(&self, state: &State) -> Option<Reason> {
        if self.stopping {
            Some(Reason::Stopped)
        } else if state.ending.wrapping_up.is_some() {
            self.nothing_left.then_some(Reason::Budget)
        } else if self.exceeded.is_some() {
            Some(Reason::Budget)
        } else if state.counts.model_calls >= self.limits.turns_before_wrap_up(self.wrap_up) {
            Some(Reason::MaxTurns)
        } else {
            None
        }
    }

    /// What comes in the place of a request, where none may be sent: the end, or the last turn.
    pub fn instead(&self, state: &State) -> Option<Next> {
        let end = Next::Finish(self.at_limit(state)?);
        // A model that was never asked wants nothing more, unless calls of an earlier run were answered.
        Some(match state.counts.model_calls > 0 || answers_tools(state) {
            true => self.or_wrap_up(state, end),
            false => end,
        })
    }

    /// What is next within the limits: nothing is asked again when no request is left.
    fn limit(&self, state: &State, next: Next) -> Next {
        match self.at_limit(state) {
            Some(reason) if next.asks_again() => self.or_wrap_up(state, Next::Finish(reason)),
            _ => next,
        }
    }

    /// What is next, or a last turn before it, where that is wanted and there is one left.
    fn or_wrap_up(&self, state: &State, next: Next) -> Next {
        match next {
            Next::Finish(reason @ (Reason::Budget | Reason::MaxTurns))
                if self.wrap_up
                    && !self.stopping
                    && state.counts.model_calls < self.limits.max_turns =>
            {
                Next::WrapUp(reason)
            }
            next => next,
        }
    }

    /// Whether the model may be asked again.
    pub(in crate::agent) fn has_room(&self, state: &State) -> bool {
        self.at_limit(state).is_none() && state.ending.wrapping_up.is_none()
    }
}

/// Corrects a reply that cannot be used, unless it is one too many.
fn correct(state: &State, limits: &Limits, what: String) -> Next {
    match state.streaks.malformed < limits.corrections {
        true => Next::Say {
            transition: Transition::Corrective,
            why: AppendedWhy::Corrective,
            text: what.into(),
        },
        false => Next::Finish(Reason::Malformed),
    }
}

/// Whether there is something in the turn for somebody to read.
fn speaks(turn: &Turn) -> bool {
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
pub(in crate::agent) fn answers_tools(state: &State) -> bool {
    state.history.live_newest_first().next().is_some_and(|item| item.as_tool_result().is_some())
}
