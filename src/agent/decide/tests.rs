use super::*;
use crate::agent::Limits;
use crate::agent::repeat_counter::RepeatCounter;
use crate::event::BudgetKind;
use crate::item::{History, Item, ProviderData, RawJson, ResultKind, ToolCall, ToolResult};
use crate::turn::{TurnBuilder, TurnEvent};

fn turn(reason: StopReason, text: &str, calls: u32) -> std::sync::Arc<Turn> {
    let mut turn = TurnBuilder::new();
    turn.push_text(0, text);
    for call in 0..calls {
        turn.start_tool_call(call, "", "t");
        turn.end_tool_call(call);
    }
    turn.stop(reason, "");
    turn.complete().unwrap();
    match std::iter::from_fn(|| turn.next_event()).last() {
        Some(TurnEvent::TurnComplete { turn }) => turn,
        _ => panic!("no turn"),
    }
}

fn state() -> State {
    asked_once(History::empty("h"))
}

fn asked_once(history: History) -> State {
    State::new(history).update(|it| it.counts.model_calls = 1)
}

fn spent() -> BudgetExceeded {
    BudgetExceeded { kind: BudgetKind::TotalTokens, used: 5, limit: 4, diminishing_returns: false }
}

fn say(transition: Transition, why: AppendReason, text: &str) -> NextAction {
    NextAction::SendMessage { transition, append_reason: why, text: text.to_owned().into() }
}

fn corrective(text: &str) -> NextAction {
    say(Transition::Corrective, AppendReason::Corrective, text)
}

fn then(next: NextAction) -> Decision {
    Decision::Continue(next)
}

fn finish(reason: EndReason) -> Decision {
    then(NextAction::Finish(reason))
}

fn go_on(transition: Transition) -> Decision {
    then(NextAction::Continue(transition))
}

fn cut_off() -> NextAction {
    say(
        Transition::MaxOutputTokensRecovery,
        AppendReason::Continuation,
        prompts::CONTINUE_TRUNCATED,
    )
}

#[track_caller]
fn check(state: &State, reason: StopReason, text: &str, calls: u32, expected: &Decision) {
    assert_eq!(&decide(state, &turn(reason, text, calls), &Facts::default()), expected);
}

#[test]
fn each_stop_reason_maps_to_its_decision() {
    use EndReason::{ContextWindow, Filtered, Malformed, Refused};
    let other = || StopReason::Other("odd".into());
    let s = &state();
    check(s, StopReason::Stop, "hi", 0, &Decision::Stop);
    check(s, StopReason::Stop, "hi", 1, &Decision::RunTools);
    check(s, StopReason::Stop, "", 0, &then(corrective(prompts::EMPTY_REPLY)));
    check(s, StopReason::ToolCalls, "", 2, &Decision::RunTools);
    check(s, StopReason::ToolCalls, "hi", 0, &Decision::Stop);
    check(s, StopReason::ToolCalls, "", 0, &finish(Malformed));
    check(s, StopReason::MaxTokens, "hi", 0, &then(cut_off()));
    check(s, StopReason::MaxTokens, "", 1, &go_on(Transition::MaxOutputTokensRecovery));
    check(s, StopReason::ContextWindow, "", 1, &finish(ContextWindow));
    check(s, StopReason::ContentFilter, "hi", 1, &finish(Filtered));
    check(s, StopReason::Refusal, "no", 0, &finish(Refused));
    check(s, StopReason::Pause, "", 0, &go_on(Transition::PauseResumed));
    check(s, other(), "hi", 0, &Decision::Stop);
    check(s, other(), "", 0, &then(corrective(prompts::EMPTY_REPLY)));
    check(s, other(), "", 1, &go_on(Transition::Corrective));
}

#[test]
fn white_space_is_not_an_answer() {
    let empty = then(corrective(prompts::EMPTY_REPLY));
    for blank in [" ", "\n\n", "\u{a0}\t"] {
        check(&state(), StopReason::Stop, blank, 0, &empty);
        check(&state(), StopReason::Other("odd".into()), blank, 0, &empty);
        check(&state(), StopReason::ToolCalls, blank, 0, &finish(EndReason::Malformed));
    }
}

/// A turn that consists of one provider-specific item.
fn provider_turn(provider: &str, value: &str) -> std::sync::Arc<Turn> {
    let mut turn = TurnBuilder::new();
    turn.push_provider_item(ProviderData {
        provider: provider.to_owned(),
        model: "m".to_owned(),
        value: RawJson::parse(value).unwrap(),
    });
    turn.stop(StopReason::Stop, "");
    turn.complete().unwrap();
    match std::iter::from_fn(|| turn.next_event()).last() {
        Some(TurnEvent::TurnComplete { turn }) => turn,
        _ => panic!("no turn"),
    }
}

#[test]
fn metadata_of_the_provider_is_not_an_answer() {
    let decided =
        |provider, value| decide(&state(), &provider_turn(provider, value), &Facts::default());
    let empty = then(corrective(prompts::EMPTY_REPLY));
    for (provider, value) in [
        ("anthropic", r#"{"type":"message","stop_sequence":"END"}"#),
        ("openai_responses", r#"{"type":"mcp_list_tools","tools":[]}"#),
        ("gemini", r#"{"continuationToken":"t"}"#),
    ] {
        assert_eq!(decided(provider, value), empty, "{value}");
    }
    let image = r#"{"type":"image_generation_call","result":"AA"}"#;
    assert_eq!(decided("openai_responses", image), Decision::Stop);
    assert_eq!(decided("gemini", r#"{"inlineData":{"data":"AA"}}"#), Decision::Stop);
}

#[test]
fn a_call_that_only_the_client_can_answer_fails_the_run() {
    for kind in [
        "computer_call",
        "shell_call",
        "local_shell_call",
        "apply_patch_call",
        "custom_tool_call",
        "mcp_approval_request",
    ] {
        let item = format!(r#"{{"type":"{kind}","id":"i","call_id":"c"}}"#);
        let turn = provider_turn("openai_responses", &item);
        let Decision::Fail(error) = decide(&state(), &turn, &Facts::default()) else {
            panic!("{kind} is passed off as an answer")
        };
        assert_eq!((error.kind(), error.parameter()), (ErrorKind::Unsupported, Some("tools")));
        assert!(error.message().contains(kind), "{error}");
    }
    for item in [
        r#"{"type":"web_search_call","id":"i"}"#,
        r#"{"type":"tool_search_call","id":"i","call_id":"c","execution":"server"}"#,
    ] {
        let turn = provider_turn("openai_responses", item);
        assert_eq!(decide(&state(), &turn, &Facts::default()), Decision::Stop, "{item}");
    }
}

/// A state whose last request, to the model `m`, contained reasoning of this model.
fn state_with_reasoning(model: &str) -> State {
    let value = RawJson::parse(r#"{"signature":"s"}"#).unwrap();
    let data = ProviderData { provider: "anthropic".to_owned(), model: model.to_owned(), value };
    let thought = Item { provider_data: Some(data.into()), ..Item::reasoning("hm") };
    let history = History::from_items("h", [Item::user("go"), thought, Item::text("so")]);
    asked_once(history).update(|it| it.model_selection.model = "m".into())
}

#[test]
fn refused_reasoning_is_removed_once_in_a_row() {
    let error = Error::new(ErrorKind::ReasoningRefused, "stale");
    let on = |state: &State, facts: &Facts| on_error(state, &error, facts);
    let (facts, has_reasoning) = (Facts::default(), state_with_reasoning("m"));
    let without = NextAction::Continue(Transition::ReasoningRefused);
    assert_eq!(on(&has_reasoning, &facts), Some(without.clone()));
    let again =
        has_reasoning.clone().update(|it| it.transition = Some(Transition::ReasoningRefused));
    assert_eq!(on(&again, &facts), None);
    // There is nothing to remove.
    assert_eq!(on(&state(), &facts), None);
    assert_eq!(on(&state_with_reasoning("other"), &facts), None);
    // The same model is asked first, then another one, and not beyond the limit on requests.
    let fallback = Facts { fallback_count: 1, ..Facts::default() };
    assert_eq!(on(&has_reasoning, &fallback), Some(without));
    assert_eq!(on(&again, &fallback), Some(NextAction::Continue(Transition::Fallback)));
    let at_cap = has_reasoning.update(|it| it.counts.model_calls = 20);
    assert_eq!(on(&at_cap, &facts), None);
}

#[test]
fn an_empty_reply_after_tool_results_ends_the_run() {
    let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: String::new() };
    let result = ToolResult::for_call(&call, ResultKind::Ok, "done");
    let history = History::from_items("h", [Item::tool_result(result)]);
    let state = asked_once(history);
    check(&state, StopReason::Stop, "", 0, &Decision::Stop);
}

#[test]
fn exceeding_a_streak_limit_ends_the_run() {
    let malformed = state().update(|it| it.streaks.malformed_replies = 2);
    check(&malformed, StopReason::Stop, "", 0, &finish(EndReason::Malformed));
    let asked_again = state().update(|it| it.streaks.retried_unknown_stop = true);
    check(&asked_again, StopReason::Other("odd".into()), "", 1, &finish(EndReason::Malformed));
    let continued = state().update(|it| it.streaks.continuations = 3);
    check(&continued, StopReason::MaxTokens, "hi", 0, &finish(EndReason::Truncated));
    let cut = state().update(|it| it.streaks.truncated_calls = 1);
    check(&cut, StopReason::MaxTokens, "", 1, &finish(EndReason::Truncated));
}

#[test]
fn a_full_context_window_is_compacted_only_once() {
    let full = turn(StopReason::ContextWindow, "half", 0);
    let facts = Facts { can_compact: true, ..Facts::default() };
    assert_eq!(decide(&state(), &full, &facts), then(NextAction::Compact));
    // With continuations disabled, a truncated text is not continued after a compaction either.
    let limits = Limits { max_continuations: 0, ..Limits::default() };
    let whole = Facts { limits, ..facts.clone() };
    assert_eq!(decide(&state(), &full, &whole), finish(EndReason::ContextWindow));
    let calls = turn(StopReason::ContextWindow, "half", 1);
    assert_eq!(decide(&state(), &calls, &whole), then(NextAction::Compact));
    let error = Error::new(ErrorKind::ContextWindow, "too long");
    assert_eq!(on_error(&state(), &error, &facts), Some(NextAction::Compact));
    assert_eq!(on_error(&state(), &error, &Facts::default()), None);
}

#[test]
fn an_error_ends_the_run_unless_a_retry_or_fallback_is_left() {
    let broken = PartialTurn::default().into_error(None);
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let wrong = Error::new(ErrorKind::InvalidRequest, "wrong");
    let on = |state: &State, error, retries, fallbacks| {
        let limits = Limits { max_turn_retries: retries, ..Limits::default() };
        let broke_off = super::is_incomplete_turn(error);
        on_error(
            state,
            error,
            &Facts {
                limits,
                has_incomplete_turn: broke_off,
                fallback_count: fallbacks,
                ..Facts::default()
            },
        )
    };
    let s = state();
    assert_eq!(on(&s, &broken, 0, 0), None);
    assert_eq!(on(&s, &broken, 1, 0), Some(NextAction::Continue(Transition::Retry)));
    let retried = state().update(|it| it.streaks.turn_retries = 1);
    assert_eq!(on(&retried, &broken, 1, 0), None);
    assert_eq!(on(&retried, &broken, 1, 1), Some(NextAction::Continue(Transition::Fallback)));
    // A turn that failed before it started is retried by the provider, not by the loop.
    assert_eq!(on(&s, &busy, 1, 0), None);
    assert_eq!(on(&s, &busy, 1, 1), Some(NextAction::Continue(Transition::Fallback)));
    let last = state().update(|it| it.model_selection.provider_index = 1);
    assert_eq!(on(&last, &busy, 0, 1), None);
    // A mistake of the caller would fail with every provider.
    assert_eq!(on(&s, &wrong, 1, 1), None);
    let at_cap = state().update(|it| it.counts.model_calls = 20);
    assert_eq!(on(&at_cap, &busy, 1, 1), None);
}

#[test]
fn a_turn_is_incomplete_if_it_had_output_or_ended_without_any() {
    let check = |kind, text: &str, broke_off: bool| {
        let mut builder = TurnBuilder::new();
        if !text.is_empty() {
            builder.push_text(0, text);
        }
        let error = Error::new(kind, "oh").with_source(builder.fail_incomplete(None));
        assert_eq!(super::is_incomplete_turn(&error), broke_off, "{kind} after {text:?}");
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
    assert!(!super::is_incomplete_turn(&told), "the provider says that it is of no use");
    let exhausted = check(ErrorKind::Server, "It is", true).mark_retries_exhausted();
    assert!(!super::is_incomplete_turn(&exhausted), "it was tried again already");
}

#[test]
fn at_max_turns_tools_still_run_but_no_request_follows() {
    let facts =
        Facts { limits: Limits { max_turns: Some(1), ..Limits::default() }, ..Facts::default() };
    let at_cap = |reason, text, calls| decide(&state(), &turn(reason, text, calls), &facts);
    assert_eq!(at_cap(StopReason::Pause, "", 0), finish(EndReason::MaxTurns));
    assert_eq!(at_cap(StopReason::Stop, "", 0), finish(EndReason::MaxTurns));
    assert_eq!(at_cap(StopReason::Stop, "hi", 0), Decision::Stop);
    assert_eq!(at_cap(StopReason::ToolCalls, "", 1), Decision::RunTools);
    assert_eq!(after_tools(&state(), false, &facts), NextAction::Finish(EndReason::MaxTurns));
    assert_eq!(after_tools(&state(), true, &facts), NextAction::Finish(EndReason::Pending));
}

#[test]
fn after_tools_the_run_continues_unless_it_repeats_itself() {
    let facts = Facts::default();
    let after = |state: State| after_tools(&state, false, &facts);
    let next_turn = NextAction::Continue(Transition::NextTurn);
    assert_eq!(after(state()), next_turn);
    assert_eq!(after(state().update(|it| it.streaks.malformed_replies = 2)), next_turn);
    assert_eq!(
        after(state().update(|it| it.streaks.malformed_replies = 3)),
        NextAction::Finish(EndReason::Malformed)
    );
    let repeated = |times| {
        let again = |repeats: RepeatCounter, _| repeats.with_hash(1);
        after(
            state()
                .update(|it| it.streaks.repeats = (0..times).fold(RepeatCounter::default(), again)),
        )
    };
    let nudge = say(Transition::NextTurn, AppendReason::Nudge, prompts::REPEATED_CALLS);
    assert_eq!(repeated(3), next_turn);
    assert_eq!(repeated(4), nudge);
    assert_eq!(repeated(5), next_turn);
    assert_eq!(repeated(8), nudge);
    assert_eq!(repeated(24), NextAction::Finish(EndReason::Repeating));
}

#[test]
fn an_exceeded_budget_keeps_the_response_and_refuses_its_calls() {
    let facts = Facts { exceeded_budget: Some(spent()), ..Facts::default() };
    let Decision::RefuseTools { result_kind: kind, reason: why, next } =
        decide(&state(), &turn(StopReason::ToolCalls, "", 2), &facts)
    else {
        panic!("not refused")
    };
    assert_eq!((kind, next), (ResultKind::Budget, NextAction::Finish(EndReason::Budget)));
    assert!(why.contains("5 of 4 tokens used"), "{why}");
    // A model that has stopped needs no further budget.
    assert_eq!(decide(&state(), &turn(StopReason::Stop, "hi", 0), &facts), Decision::Stop);
    assert_eq!(
        at_stop(&state(), StopReview::Accept, &facts),
        NextAction::Finish(EndReason::Completed)
    );
}

#[test]
fn the_wrap_up_turn_is_the_last_turn_before_the_end() {
    let limits = Limits { max_turns: Some(3), ..Limits::default() };
    let facts = Facts { has_wrap_up: true, limits, ..Facts::default() };
    let two = state().update(|it| it.counts.model_calls = 2);
    assert_eq!(after_tools(&state(), false, &facts), NextAction::Continue(Transition::NextTurn));
    assert_eq!(after_tools(&two, false, &facts), NextAction::WrapUp(EndReason::MaxTurns));
    let broke = Facts { exceeded_budget: Some(spent()), ..facts.clone() };
    assert_eq!(after_tools(&state(), false, &broke), NextAction::WrapUp(EndReason::Budget));
    let wrapping = state().update(|it| {
        it.end.wrap_up_reason = Some(EndReason::Budget);
        it.counts.model_calls = 3;
    });
    for (reason, calls) in
        [(StopReason::Stop, 0), (StopReason::ToolCalls, 1), (StopReason::Pause, 0)]
    {
        let decision = decide(&wrapping, &turn(reason, "so", calls), &broke);
        let next = NextAction::Finish(EndReason::Budget);
        assert_eq!(decision, Decision::refuse_tools(prompts::NOT_RUN_DURING_WRAP_UP, next));
    }
    // If there is only one request, it is not reserved for wrapping up.
    let one = Facts { limits: Limits { max_turns: Some(1), ..limits }, ..facts };
    assert_eq!(one.limit_end_reason(&state().update(|it| it.counts.model_calls = 0)), None);
}

#[test]
fn on_stop_reviews_are_applied_in_order() {
    let facts = |steered, follow_up| Facts {
        has_steering: steered,
        has_follow_up: follow_up,
        ..Facts::default()
    };
    let at = |review, facts: &Facts| at_stop(&state(), review, facts);
    let block = || StopReview::HookDecision(StopDecision::Continue("not yet".into()));
    let prevent = || StopReview::HookDecision(StopDecision::EndRun("enough".into()));
    let steering = NextAction::Continue(Transition::Steering);

    let rejected = corrective(&prompts::rejected_answer_prompt("it is blue"));
    let objection = || StopReview::ValidationFailed("it is blue".into());
    assert_eq!(at(objection(), &facts(true, true)), steering);
    assert_eq!(at(objection(), &facts(false, true)), rejected);
    assert_eq!(at(block(), &facts(true, true)), steering);
    let blocked = say(Transition::StopHookBlocking, AppendReason::StopHook, "not yet");
    assert_eq!(at(block(), &facts(false, true)), blocked);
    assert_eq!(
        at(prevent(), &facts(false, true)),
        NextAction::Finish(EndReason::StopHookPrevented)
    );
    let blocked = StopReview::HookDecision(StopDecision::Blocked("no key".into()));
    assert_eq!(at(blocked, &facts(false, true)), NextAction::Finish(EndReason::Blocked));
    let unproven = StopReview::HookDecision(StopDecision::Unproven("no test ran".into()));
    assert_eq!(at(unproven, &facts(false, true)), NextAction::Finish(EndReason::Unproven));
    let nudged = say(Transition::Nudge, AppendReason::Nudge, "more");
    assert_eq!(at(StopReview::Nudge("more".into()), &facts(false, true)), nudged);
    assert_eq!(
        at(StopReview::Accept, &facts(false, true)),
        NextAction::Continue(Transition::FollowUp)
    );
    assert_eq!(
        at(StopReview::Accept, &facts(false, false)),
        NextAction::Finish(EndReason::Completed)
    );
}

#[test]
fn a_claim_without_evidence_is_rejected_only_once() {
    let review = || {
        let (text, reason) = ("Prove it.".to_owned(), "no check".to_owned());
        StopReview::HookDecision(StopDecision::RequireEvidence { text, reason })
    };
    let rejected = state().update(|it| it.evidence.claim_rejected = true);
    let facts = Facts::default();
    let reject = say(Transition::StopHookBlocking, AppendReason::StopHook, "Prove it.");
    let unproven = NextAction::Finish(EndReason::Unproven);
    assert_eq!(at_stop(&state(), review(), &facts), reject);
    assert_eq!(at_stop(&rejected, review(), &facts), unproven);
    // The model could not answer.
    let stopped = Facts { stop_requested: true, ..Facts::default() };
    assert_eq!(at_stop(&state(), review(), &stopped), unproven);
}

#[test]
fn a_rejected_answer_is_corrected_up_to_max_corrections_times() {
    let objection = || StopReview::ValidationFailed("it is blue".into());
    let after = |malformed| {
        at_stop(
            &state().update(|it| it.streaks.malformed_replies = malformed),
            objection(),
            &Facts::default(),
        )
    };
    assert_eq!(after(1), corrective(&prompts::rejected_answer_prompt("it is blue")));
    assert_eq!(after(2), NextAction::Finish(EndReason::Malformed));
}

#[test]
fn with_no_request_left_queued_input_is_ignored_and_the_run_completes() {
    let full = state().update(|it| it.counts.model_calls = 20);
    let facts = Facts { has_steering: true, has_follow_up: true, ..Facts::default() };
    assert_eq!(
        at_stop(&full, StopReview::Accept, &facts),
        NextAction::Finish(EndReason::Completed)
    );
    let nudge = StopReview::Nudge("more".into());
    assert_eq!(at_stop(&full, nudge, &facts), NextAction::Finish(EndReason::Completed));
    // The model has to continue but cannot, so the run ends as `MaxTurns`.
    let block = StopReview::HookDecision(StopDecision::Continue("not yet".into()));
    assert_eq!(at_stop(&full, block, &facts), NextAction::Finish(EndReason::MaxTurns));
}

#[test]
fn stop_after_turn_lets_the_turn_finish() {
    let facts = Facts { stop_requested: true, has_steering: true, ..Facts::default() };
    let calls = turn(StopReason::ToolCalls, "", 1);
    assert_eq!(decide(&state(), &calls, &facts), Decision::RunTools);
    assert_eq!(after_tools(&state(), false, &facts), NextAction::Finish(EndReason::Stopped));
    assert_eq!(
        at_stop(&state(), StopReview::Accept, &facts),
        NextAction::Finish(EndReason::Completed)
    );
    let paused = turn(StopReason::Pause, "", 0);
    assert_eq!(decide(&state(), &paused, &facts), finish(EndReason::Stopped));
}

#[test]
fn a_tombstone_after_tool_results_does_not_hide_them() {
    let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: "{}".into() };
    let result = Item::tool_result(ToolResult::for_call(&call, ResultKind::Ok, "fine"));
    let items = |last: Item| [Item::tool_call("c", "t", "{}"), result.clone(), last];
    let answers = |last| ends_with_tool_result(&State::new(History::from_items("h", items(last))));
    assert!(answers(Item::user("u").with_flag(crate::item::ItemFlag::Tombstone)));
    assert!(!answers(Item::user("u")));
}
