use super::*;
use crate::agent::Repeats;
use crate::event::BudgetKind;
use crate::item::{History, Item, ResultKind, ToolCall, ToolResult};
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
    asked_once(History::from_id("h"))
}

fn asked_once(history: History) -> State {
    State::new(history).with(|it| it.counts.model_calls = 1)
}

fn spent() -> Exceeded {
    Exceeded { kind: BudgetKind::TotalTokens, used: 5, limit: 4, diminishing_returns: false }
}

fn say(transition: Transition, why: AppendedWhy, text: &str) -> Next {
    Next::Say { transition, why, text: text.to_owned().into() }
}

fn corrective(text: &str) -> Next {
    say(Transition::Corrective, AppendedWhy::Corrective, text)
}

fn then(next: Next) -> Decision {
    Decision::Then(next)
}

fn finish(reason: Reason) -> Decision {
    then(Next::Finish(reason))
}

fn go_on(transition: Transition) -> Decision {
    then(Next::Continue(transition))
}

fn cut_off() -> Next {
    say(Transition::MaxOutputTokensRecovery, AppendedWhy::Continuation, words::CUT_OFF)
}

#[track_caller]
fn check(state: &State, reason: StopReason, text: &str, calls: u32, expected: &Decision) {
    assert_eq!(&decide(state, &turn(reason, text, calls), &Facts::default()), expected);
}

#[test]
fn the_table_of_turns() {
    use Reason::{ContextWindow, Filtered, Malformed, Refused};
    let other = || StopReason::Other("odd".into());
    let s = &state();
    check(s, StopReason::Stop, "hi", 0, &Decision::Stop);
    check(s, StopReason::Stop, "hi", 1, &Decision::RunTools);
    check(s, StopReason::Stop, "", 0, &then(corrective(words::EMPTY_REPLY)));
    check(s, StopReason::ToolCalls, "", 2, &Decision::RunTools);
    check(s, StopReason::ToolCalls, "hi", 0, &Decision::Stop);
    check(s, StopReason::ToolCalls, "", 0, &finish(Malformed));
    check(s, StopReason::MaxTokens, "hi", 0, &then(cut_off()));
    check(s, StopReason::MaxTokens, "", 1, &go_on(Transition::MaxOutputTokensRecovery));
    check(s, StopReason::ContextWindow, "", 1, &finish(ContextWindow));
    check(s, StopReason::ContentFilter, "hi", 1, &finish(Filtered));
    check(s, StopReason::Refusal, "no", 0, &finish(Refused));
    check(s, StopReason::Pause, "", 0, &go_on(Transition::PauseResumed));
    check(s, other(), "", 0, &Decision::Stop);
    check(s, other(), "", 1, &go_on(Transition::Corrective));
}

#[test]
fn an_empty_reply_behind_tool_results_is_the_end() {
    let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: String::new() };
    let result = ToolResult::for_call(&call, ResultKind::Ok, "done");
    let history = History::from_items("h", [Item::tool_result(result)]);
    let state = asked_once(history);
    check(&state, StopReason::Stop, "", 0, &Decision::Stop);
}

#[test]
fn what_happens_too_often_in_a_row_ends_the_run() {
    let malformed = state().with(|it| it.streaks.malformed = 2);
    check(&malformed, StopReason::Stop, "", 0, &finish(Reason::Malformed));
    let asked_again = state().with(|it| it.streaks.asked_again = true);
    check(&asked_again, StopReason::Other("odd".into()), "", 1, &finish(Reason::Malformed));
    let continued = state().with(|it| it.streaks.recovery_count = 3);
    check(&continued, StopReason::MaxTokens, "hi", 0, &finish(Reason::Truncated));
    let cut = state().with(|it| it.streaks.cut_calls = 1);
    check(&cut, StopReason::MaxTokens, "", 1, &finish(Reason::Truncated));
}

#[test]
fn a_full_window_is_made_room_in_once() {
    let full = turn(StopReason::ContextWindow, "half", 0);
    let facts = Facts { can_compact: true, ..Facts::default() };
    assert_eq!(decide(&state(), &full, &facts), then(Next::Compact));
    // A text that is not to be continued is not, whatever room is made.
    let limits = Limits { continuations: 0, ..Limits::default() };
    let whole = Facts { limits, ..facts.clone() };
    assert_eq!(decide(&state(), &full, &whole), finish(Reason::ContextWindow));
    let calls = turn(StopReason::ContextWindow, "half", 1);
    assert_eq!(decide(&state(), &calls, &whole), then(Next::Compact));
    let error = Error::new(ErrorKind::ContextWindow, "too long");
    assert_eq!(on_error(&state(), &error, &facts), Some(Next::Compact));
    assert_eq!(on_error(&state(), &error, &Facts::default()), None);
}

#[test]
fn errors_end_the_run_unless_there_is_something_left_to_try() {
    let broken = PartialTurn::default().into_error(None);
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let wrong = Error::new(ErrorKind::InvalidRequest, "wrong");
    let on = |state: &State, error, retries, fallbacks| {
        let limits = Limits { retries, ..Limits::default() };
        let broke_off = super::broke_off(error);
        on_error(state, error, &Facts { limits, broke_off, fallbacks, ..Facts::default() })
    };
    let s = state();
    assert_eq!(on(&s, &broken, 0, 0), None);
    assert_eq!(on(&s, &broken, 1, 0), Some(Next::Continue(Transition::Retry)));
    let retried = state().with(|it| it.streaks.retries = 1);
    assert_eq!(on(&retried, &broken, 1, 0), None);
    assert_eq!(on(&retried, &broken, 1, 1), Some(Next::Continue(Transition::Fallback)));
    // Of what did not even begin, a provider's own retries take care.
    assert_eq!(on(&s, &busy, 1, 0), None);
    assert_eq!(on(&s, &busy, 1, 1), Some(Next::Continue(Transition::Fallback)));
    let last = state().with(|it| it.asked.provider = 1);
    assert_eq!(on(&last, &busy, 0, 1), None);
    // A mistake of the caller is the same everywhere.
    assert_eq!(on(&s, &wrong, 1, 1), None);
    let at_cap = state().with(|it| it.counts.model_calls = 20);
    assert_eq!(on(&at_cap, &busy, 1, 1), None);
}

#[test]
fn a_turn_broke_off_if_it_said_something_or_ended_without_a_word() {
    let check = |kind, text: &str, broke_off: bool| {
        let mut builder = TurnBuilder::new();
        if !text.is_empty() {
            builder.text(0, text);
        }
        let error = Error::new(kind, "oh").with_source(builder.incomplete(None));
        assert_eq!(super::broke_off(&error), broke_off, "{kind} after {text:?}");
        error
    };
    for kind in [ErrorKind::Server, ErrorKind::Timeout, ErrorKind::Overloaded] {
        check(kind, "It is", true);
        check(kind, "", false);
    }
    check(ErrorKind::IncompleteTurn, "It is", true);
    check(ErrorKind::IncompleteTurn, "", true);
    check(ErrorKind::GenerationFailed, "It is", false);
    check(ErrorKind::Filtered, "It is", false);
    let told = check(ErrorKind::Server, "It is", true).with_retryable(false);
    assert!(!super::broke_off(&told), "the provider says that it is of no use");
    let exhausted = check(ErrorKind::Server, "It is", true).with_retries_exhausted();
    assert!(!super::broke_off(&exhausted), "it was tried again already");
}

#[test]
fn at_the_cap_nothing_goes_on_but_the_tools_still_run() {
    let facts = Facts { limits: Limits { max_turns: 1, ..Limits::default() }, ..Facts::default() };
    let at_cap = |reason, text, calls| decide(&state(), &turn(reason, text, calls), &facts);
    assert_eq!(at_cap(StopReason::Pause, "", 0), finish(Reason::MaxTurns));
    assert_eq!(at_cap(StopReason::Stop, "", 0), finish(Reason::MaxTurns));
    assert_eq!(at_cap(StopReason::Stop, "hi", 0), Decision::Stop);
    assert_eq!(at_cap(StopReason::ToolCalls, "", 1), Decision::RunTools);
    assert_eq!(after_tools(&state(), false, &facts), Next::Finish(Reason::MaxTurns));
    assert_eq!(after_tools(&state(), true, &facts), Next::Finish(Reason::Pending));
}

#[test]
fn behind_the_tools_the_run_goes_on_unless_it_gets_nowhere() {
    let facts = Facts::default();
    let after = |state: State| after_tools(&state, false, &facts);
    let next_turn = Next::Continue(Transition::NextTurn);
    assert_eq!(after(state()), next_turn);
    assert_eq!(after(state().with(|it| it.streaks.malformed = 2)), next_turn);
    assert_eq!(after(state().with(|it| it.streaks.malformed = 3)), Next::Finish(Reason::Malformed));
    let repeated = |times| {
        let again = |repeats: Repeats, _| repeats.and_hash(1);
        after(state().with(|it| it.streaks.repeats = (0..times).fold(Repeats::default(), again)))
    };
    let nudge = say(Transition::NextTurn, AppendedWhy::Nudge, words::REPEATED);
    assert_eq!(repeated(3), next_turn);
    assert_eq!(repeated(4), nudge);
    assert_eq!(repeated(5), next_turn);
    assert_eq!(repeated(8), nudge);
    assert_eq!(repeated(24), Next::Finish(Reason::Repeating));
}

#[test]
fn a_spent_budget_keeps_the_response_and_refuses_its_calls() {
    let facts = Facts { exceeded: Some(spent()), ..Facts::default() };
    let Decision::Refuse { kind, why, next } =
        decide(&state(), &turn(StopReason::ToolCalls, "", 2), &facts)
    else {
        panic!("not refused")
    };
    assert_eq!((kind, next), (ResultKind::Budget, Next::Finish(Reason::Budget)));
    assert!(why.contains("5 of 4 tokens used"), "{why}");
    // A model that is done is done.
    assert_eq!(decide(&state(), &turn(StopReason::Stop, "hi", 0), &facts), Decision::Stop);
    assert_eq!(at_stop(&state(), AtStop::Fine, &facts), Next::Finish(Reason::Completed));
}

#[test]
fn a_wrap_up_turn_comes_before_the_end_and_is_the_last() {
    let limits = Limits { max_turns: 3, ..Limits::default() };
    let facts = Facts { wrap_up: true, limits, ..Facts::default() };
    let two = state().with(|it| it.counts.model_calls = 2);
    assert_eq!(after_tools(&state(), false, &facts), Next::Continue(Transition::NextTurn));
    assert_eq!(after_tools(&two, false, &facts), Next::WrapUp(Reason::MaxTurns));
    let broke = Facts { exceeded: Some(spent()), ..facts.clone() };
    assert_eq!(after_tools(&state(), false, &broke), Next::WrapUp(Reason::Budget));
    let wrapping = state().with(|it| {
        it.ending.wrapping_up = Some(Reason::Budget);
        it.counts.model_calls = 3;
    });
    for (reason, calls) in
        [(StopReason::Stop, 0), (StopReason::ToolCalls, 1), (StopReason::Pause, 0)]
    {
        let decision = decide(&wrapping, &turn(reason, "so", calls), &broke);
        let next = Next::Finish(Reason::Budget);
        assert_eq!(decision, Decision::refuse(words::WRAPPING_UP, next));
    }
    // The only turn there is is not one for wrapping up.
    let one = Facts { limits: Limits { max_turns: 1, ..limits }, ..facts };
    assert_eq!(one.at_limit(&state().with(|it| it.counts.model_calls = 0)), None);
}

#[test]
fn when_the_model_stops_those_who_may_object_are_heard_in_their_order() {
    let facts = |steered, follow_up| Facts { steered, follow_up, ..Facts::default() };
    let at = |said, facts: &Facts| at_stop(&state(), said, facts);
    let block = || AtStop::Hook(OnStop::Block("not yet".into()));
    let prevent = || AtStop::Hook(OnStop::Prevent("enough".into()));
    let steering = Next::Continue(Transition::Steering);

    let rejected = corrective(&words::rejected("it is blue"));
    let objection = || AtStop::Objection("it is blue".into());
    assert_eq!(at(objection(), &facts(true, true)), steering);
    assert_eq!(at(objection(), &facts(false, true)), rejected);
    assert_eq!(at(block(), &facts(true, true)), steering);
    let blocked = say(Transition::StopHookBlocking, AppendedWhy::StopHook, "not yet");
    assert_eq!(at(block(), &facts(false, true)), blocked);
    assert_eq!(at(prevent(), &facts(false, true)), Next::Finish(Reason::StopHookPrevented));
    let blocked = AtStop::Hook(OnStop::Blocked("no key".into()));
    assert_eq!(at(blocked, &facts(false, true)), Next::Finish(Reason::Blocked));
    let unproven = AtStop::Hook(OnStop::Unproven("no test ran".into()));
    assert_eq!(at(unproven, &facts(false, true)), Next::Finish(Reason::Unproven));
    let nudged = say(Transition::Nudge, AppendedWhy::Nudge, "more");
    assert_eq!(at(AtStop::Nudge("more".into()), &facts(false, true)), nudged);
    assert_eq!(at(AtStop::Fine, &facts(false, true)), Next::Continue(Transition::FollowUp));
    assert_eq!(at(AtStop::Fine, &facts(false, false)), Next::Finish(Reason::Completed));
}

#[test]
fn an_answer_that_is_objected_to_is_corrected_so_often_as_the_limit_says() {
    let objection = || AtStop::Objection("it is blue".into());
    let after = |malformed| {
        at_stop(
            &state().with(|it| it.streaks.malformed = malformed),
            objection(),
            &Facts::default(),
        )
    };
    assert_eq!(after(1), corrective(&words::rejected("it is blue")));
    assert_eq!(after(2), Next::Finish(Reason::Malformed));
}

#[test]
fn without_room_nobody_who_waits_is_heard_and_a_done_model_has_still_completed() {
    let full = state().with(|it| it.counts.model_calls = 20);
    let facts = Facts { steered: true, follow_up: true, ..Facts::default() };
    assert_eq!(at_stop(&full, AtStop::Fine, &facts), Next::Finish(Reason::Completed));
    let nudge = AtStop::Nudge("more".into());
    assert_eq!(at_stop(&full, nudge, &facts), Next::Finish(Reason::Completed));
    // Somebody who blocks the end says that it is none.
    let block = AtStop::Hook(OnStop::Block("not yet".into()));
    assert_eq!(at_stop(&full, block, &facts), Next::Finish(Reason::MaxTurns));
}

#[test]
fn who_stops_behind_the_turn_lets_it_finish() {
    let facts = Facts { stopping: true, steered: true, ..Facts::default() };
    let calls = turn(StopReason::ToolCalls, "", 1);
    assert_eq!(decide(&state(), &calls, &facts), Decision::RunTools);
    assert_eq!(after_tools(&state(), false, &facts), Next::Finish(Reason::Stopped));
    assert_eq!(at_stop(&state(), AtStop::Fine, &facts), Next::Finish(Reason::Completed));
    let paused = turn(StopReason::Pause, "", 0);
    assert_eq!(decide(&state(), &paused, &facts), finish(Reason::Stopped));
}

#[test]
fn a_void_item_after_results_does_not_hide_them() {
    let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: "{}".into() };
    let result = Item::tool_result(ToolResult::for_call(&call, ResultKind::Ok, "fine"));
    let items = |last: Item| [Item::tool_call("c", "t", "{}"), result.clone(), last];
    let answers = |last| answers_tools(&State::new(History::from_items("h", items(last))));
    assert!(answers(Item::user("u").with_mark(crate::item::Mark::Tombstone)));
    assert!(!answers(Item::user("u")));
}
