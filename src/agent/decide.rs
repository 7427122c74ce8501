//! What a turn leads to, as a pure table.

use std::borrow::Cow;

use crate::agent::State;
use crate::agent::validate::corrective;
use crate::event::{Reason, Transition};
use crate::item::{ItemKind, ResultKind, StopReason};
use crate::turn::Turn;

/// What is sent when a reply has neither words nor calls.
pub(super) const EMPTY_REPLY: &str = "Your last reply was empty. Call a tool, or answer in words.";

/// The numbers that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At most so many requests.
    pub max_turns: u32,
    /// So many replies in a row that cannot be used are corrected; the next one ends the run.
    pub corrections: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_turns: 20, corrections: 2 }
    }
}

/// What a complete turn leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run its calls, and see [`after_tools`].
    RunTools,
    /// Answer its calls, if any, without running one; then this.
    Answer(Answered),
    /// Tell the model why its reply could not be used, and ask again.
    Correct(Cow<'static, str>),
}

/// What comes when a turn has its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The run is over.
    Finish(Reason),
    /// The run goes on.
    Continue(Transition),
}

/// Decides on a complete turn. `steered` tells whether somebody waits to say something.
///
/// The calls of the turn decide, never the stop reason, which is only a veto.
pub fn decide(state: &State, turn: &Turn, limits: Limits, steered: bool) -> Decision {
    let calls = !turn.calls().is_empty();
    let says_something = turn.items().iter().any(|item| match &item.kind {
        ItemKind::Text { text } => !text.is_empty(),
        ItemKind::Other => true,
        _ => false,
    });
    let decision = match (turn.stop_reason(), calls) {
        (StopReason::Stop | StopReason::ToolCalls, true) => Decision::RunTools,
        (StopReason::Stop, false) if says_something || answers_tools(state) => completed(),
        (StopReason::Stop, false) => correct(state, limits, EMPTY_REPLY),
        (StopReason::ToolCalls, false) if says_something => completed(),
        (StopReason::ToolCalls, false) => finish(Reason::Malformed),
        (StopReason::MaxTokens, _) => finish(Reason::Truncated),
        (StopReason::ContextWindow, _) => finish(Reason::ContextWindow),
        (StopReason::ContentFilter, _) => finish(Reason::Filtered),
        (StopReason::Refusal, _) => finish(Reason::Refused),
        (StopReason::Pause, _) => go_on(Transition::PauseResumed),
        (StopReason::Other(_), false) => completed(),
        (StopReason::Other(_), true) if state.asked_again => finish(Reason::Malformed),
        (StopReason::Other(_), true) => go_on(Transition::Corrective),
    };
    match capped(state, limits, decision) {
        decision if !decision.is_completed() => decision,
        _ if steered && !is_at_cap(state, limits) => go_on(Transition::Steering),
        decision => decision,
    }
}

/// Decides again on a turn that completes the run, with what the validation of its answer says.
pub fn after_validation(state: &State, objection: Option<&str>, limits: Limits) -> Decision {
    match objection {
        None => completed(),
        Some(what) => capped(state, limits, correct(state, limits, corrective(what))),
    }
}

/// Decides when the calls of a turn have run. `results` are theirs.
pub fn after_tools(state: &State, results: &[ResultKind], limits: Limits) -> Answered {
    if malformed(state, results) > limits.corrections {
        Answered::Finish(Reason::Malformed)
    } else if is_at_cap(state, limits) {
        Answered::Finish(Reason::MaxTurns)
    } else {
        Answered::Continue(Transition::NextTurn)
    }
}

/// How many turns in a row none of whose calls could start, by the model's own fault.
pub(super) fn malformed(state: &State, results: &[ResultKind]) -> u32 {
    match !results.is_empty() && results.iter().all(|kind| kind.is_models_fault()) {
        true => state.malformed + 1,
        false => 0,
    }
}

impl Decision {
    /// Whether the run is over because the model was done.
    pub fn is_completed(&self) -> bool {
        *self == completed()
    }
}

/// Corrects a reply that cannot be used, unless it is one too many.
fn correct(state: &State, limits: Limits, what: impl Into<Cow<'static, str>>) -> Decision {
    match state.malformed < limits.corrections {
        true => Decision::Correct(what.into()),
        false => finish(Reason::Malformed),
    }
}

/// Nothing is asked again when no request is left.
fn capped(state: &State, limits: Limits, decision: Decision) -> Decision {
    match decision {
        Decision::Correct(_) | Decision::Answer(Answered::Continue(_))
            if is_at_cap(state, limits) =>
        {
            finish(Reason::MaxTurns)
        }
        decision => decision,
    }
}

fn is_at_cap(state: &State, limits: Limits) -> bool {
    state.model_calls >= limits.max_turns
}

/// An empty reply right behind tool results is a legal end.
fn answers_tools(state: &State) -> bool {
    state.history.last().is_some_and(|item| item.as_tool_result().is_some())
}

fn completed() -> Decision {
    finish(Reason::Completed)
}

fn finish(reason: Reason) -> Decision {
    Decision::Answer(Answered::Finish(reason))
}

fn go_on(transition: Transition) -> Decision {
    Decision::Answer(Answered::Continue(transition))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{History, Item, ToolCall, ToolResult};
    use crate::turn::{TurnBuilder, TurnEvent};

    fn turn(reason: StopReason, text: &str, calls: u32) -> std::sync::Arc<Turn> {
        let mut turn = TurnBuilder::new();
        turn.text(0, text);
        for call in 0..calls {
            turn.tool_call_start(call, "", "t");
            turn.tool_call_end(call);
        }
        turn.stop(reason, "");
        turn.complete().unwrap();
        match std::iter::from_fn(|| turn.next_event()).last() {
            Some(TurnEvent::TurnComplete { turn }) => turn,
            _ => panic!("no turn"),
        }
    }

    fn state() -> State {
        State { model_calls: 1, ..State::new(History::with_id("h")) }
    }

    #[track_caller]
    fn check(reason: StopReason, text: &str, calls: u32, expected: &Decision) {
        let turn = turn(reason, text, calls);
        assert_eq!(&decide(&state(), &turn, Limits::default(), false), expected);
    }

    #[test]
    fn the_table_of_turns() {
        use Reason::{Completed, ContextWindow, Filtered, Malformed, Refused, Truncated};
        let other = || StopReason::Other("odd".into());
        check(StopReason::Stop, "hi", 0, &finish(Completed));
        check(StopReason::Stop, "hi", 1, &Decision::RunTools);
        check(StopReason::Stop, "", 0, &Decision::Correct(EMPTY_REPLY.into()));
        check(StopReason::ToolCalls, "", 2, &Decision::RunTools);
        check(StopReason::ToolCalls, "hi", 0, &finish(Completed));
        check(StopReason::ToolCalls, "", 0, &finish(Malformed));
        check(StopReason::MaxTokens, "hi", 0, &finish(Truncated));
        check(StopReason::MaxTokens, "", 1, &finish(Truncated));
        check(StopReason::ContextWindow, "", 1, &finish(ContextWindow));
        check(StopReason::ContentFilter, "hi", 1, &finish(Filtered));
        check(StopReason::Refusal, "no", 0, &finish(Refused));
        check(StopReason::Pause, "", 0, &go_on(Transition::PauseResumed));
        check(other(), "", 0, &finish(Completed));
        check(other(), "", 1, &go_on(Transition::Corrective));
    }

    #[test]
    fn an_empty_reply_behind_tool_results_is_the_end() {
        let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: String::new() };
        let result = ToolResult::answering(&call, ResultKind::Ok, "done");
        let history = History::from_items("h", [Item::tool_result(result)]);
        let state = State { model_calls: 1, ..State::new(history) };
        let turn = turn(StopReason::Stop, "", 0);
        assert_eq!(decide(&state, &turn, Limits::default(), false), completed());
    }

    #[test]
    fn the_third_unusable_reply_in_a_row_ends_the_run() {
        let empty = turn(StopReason::Stop, "", 0);
        let state = State { malformed: 2, ..state() };
        assert_eq!(decide(&state, &empty, Limits::default(), false), finish(Reason::Malformed));
        let wrong = [ResultKind::UnknownTool, ResultKind::InvalidArguments];
        let ended = Answered::Finish(Reason::Malformed);
        assert_eq!(after_tools(&state, &wrong, Limits::default()), ended);
        let mixed = [ResultKind::UnknownTool, ResultKind::Ok];
        let goes_on = Answered::Continue(Transition::NextTurn);
        assert_eq!(after_tools(&state, &mixed, Limits::default()), goes_on);
    }

    #[test]
    fn a_stop_reason_that_is_not_understood_is_asked_about_once() {
        let turn = turn(StopReason::Other("odd".into()), "", 1);
        let state = State { asked_again: true, ..state() };
        assert_eq!(decide(&state, &turn, Limits::default(), false), finish(Reason::Malformed));
    }

    #[test]
    fn at_the_cap_nothing_goes_on_but_the_tools_still_run() {
        let limits = Limits { max_turns: 1, ..Limits::default() };
        let capped = finish(Reason::MaxTurns);
        let at_cap =
            |reason, text, calls| decide(&state(), &turn(reason, text, calls), limits, true);
        assert_eq!(at_cap(StopReason::Pause, "", 0), capped);
        assert_eq!(at_cap(StopReason::Stop, "", 0), capped);
        assert_eq!(at_cap(StopReason::Stop, "hi", 0), completed());
        assert_eq!(at_cap(StopReason::ToolCalls, "", 1), Decision::RunTools);
        let ended = Answered::Finish(Reason::MaxTurns);
        assert_eq!(after_tools(&state(), &[ResultKind::Ok], limits), ended);
    }

    #[test]
    fn an_answer_that_is_objected_to_is_corrected_so_often_as_the_limit_says() {
        let after = |malformed, objection| {
            let state = State { malformed, ..state() };
            after_validation(&state, objection, Limits::default())
        };
        assert_eq!(after(2, None), completed());
        let Decision::Correct(text) = after(1, Some("it is blue")) else { panic!("not corrected") };
        assert!(text.contains("it is blue"), "{text}");
        assert_eq!(after(2, Some("it is blue")), finish(Reason::Malformed));
        let one = Limits { max_turns: 1, ..Limits::default() };
        assert_eq!(after_validation(&state(), Some("no"), one), finish(Reason::MaxTurns));
    }

    #[test]
    fn steering_starts_one_more_turn_only_when_the_model_stops_by_itself() {
        let steered = |reason| decide(&state(), &turn(reason, "hi", 0), Limits::default(), true);
        assert_eq!(steered(StopReason::Stop), go_on(Transition::Steering));
        assert_eq!(steered(StopReason::Refusal), finish(Reason::Refused));
        assert_eq!(steered(StopReason::MaxTokens), finish(Reason::Truncated));
    }
}
