use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::item::{History, ProviderData, StopReason};
use crate::turn::builder::MAX_ITEMS;
use crate::turn::{PartialTurn, ReasoningKind, Turn, TurnBuilder, TurnEvent};
use crate::usage::Usage;

fn drain(turn: &mut TurnBuilder) -> Vec<TurnEvent> {
    std::iter::from_fn(|| turn.next_event()).collect()
}

fn call(turn: &mut TurnBuilder, key: u32, id: &str, name: &str, arguments: &str) {
    turn.start_tool_call(key, id, name);
    turn.push_tool_call_args(key, arguments);
    turn.end_tool_call(key);
}

/// Completes and returns `id name arguments` of each call, and the events' ids of starts.
fn finish(mut turn: TurnBuilder) -> (Vec<String>, Vec<String>) {
    turn.stop(StopReason::ToolCalls, "tool_use");
    turn.complete().unwrap();
    let events = drain(&mut turn);
    let starts = events.iter().filter_map(|event| match event {
        TurnEvent::ToolCallStart { call_id, .. } => Some(call_id.clone()),
        _ => None,
    });
    let Some(TurnEvent::TurnComplete { turn }) = events.last() else { panic!("no turn") };
    let calls =
        turn.tool_calls().map(|call| format!("{} {} {}", call.call_id, call.name, call.arguments));
    (calls.collect(), starts.collect())
}

fn history_with_call(id: &str) -> History {
    let mut turn = TurnBuilder::new();
    call(&mut turn, 0, id, "t", "{}");
    turn.stop(StopReason::ToolCalls, "");
    turn.complete().unwrap();
    let Some(TurnEvent::TurnComplete { turn }) = drain(&mut turn).pop() else { panic!() };
    History::from_items("h", turn.to_history_items())
}

#[test]
fn an_empty_call_id_is_generated_from_turn_and_call_number() {
    let mut turn = TurnBuilder::for_history(&history_with_call("a"));
    call(&mut turn, 0, "", "t", "{}");
    call(&mut turn, 1, "", "t", "{}");
    let (calls, starts) = finish(turn);
    assert_eq!(calls, ["call_2_1 t {}", "call_2_2 t {}"]);
    assert_eq!(starts, ["call_2_1", "call_2_2"]);
}

#[test]
fn a_call_id_in_the_history_is_replaced_and_the_wire_id_kept() {
    let mut turn = TurnBuilder::for_history(&history_with_call("a"));
    turn.set_provider("p");
    call(&mut turn, 0, "a", "t", "{}");
    turn.stop(StopReason::ToolCalls, "");
    turn.complete().unwrap();
    let Some(TurnEvent::TurnComplete { turn }) = drain(&mut turn).pop() else { panic!() };
    assert_eq!(turn.tool_calls().next().unwrap().call_id, "a_dup1");
    let data = turn.items()[0].provider_data.as_ref().unwrap();
    assert_eq!((data.provider.as_str(), data.value.as_str()), ("p", r#"{"wire_id":"a"}"#));
}

#[test]
fn the_same_call_twice_in_a_turn_is_one_call() {
    let mut turn = TurnBuilder::new();
    call(&mut turn, 0, "a", "t", "{\"x\":1}");
    call(&mut turn, 1, "a", "t", "{\"x\":1}");
    assert_eq!(finish(turn), (vec!["a t {\"x\":1}".into()], vec!["a".into()]));
}

#[test]
fn a_different_call_with_the_same_id_gets_a_new_id() {
    let mut turn = TurnBuilder::new();
    call(&mut turn, 0, "a", "t", "{\"x\":1}");
    call(&mut turn, 1, "a", "t", "{\"x\":2}");
    let (calls, starts) = finish(turn);
    assert_eq!(calls, ["a t {\"x\":1}", "a_dup1 t {\"x\":2}"]);
    assert_eq!(starts, ["a", "a_dup1"]);
}

#[test]
fn duplicate_ids_are_resolved_only_when_the_first_call_has_ended() {
    let mut turn = TurnBuilder::new();
    turn.start_tool_call(0, "a", "t");
    turn.push_tool_call_args(0, "{\"x\"");
    call(&mut turn, 1, "a", "t", "{\"x\":1}");
    turn.push_tool_call_args(0, ":1}");
    turn.end_tool_call(0);
    assert_eq!(finish(turn).0, ["a t {\"x\":1}"]);
}

#[test]
fn a_turn_without_an_end_marker_is_an_error_with_the_partial_turn() {
    let mut turn = TurnBuilder::new();
    turn.push_text(0, "half");
    let error = turn.complete().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
    assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "half");
}

#[test]
fn an_unfinished_call_fails_the_turn_unless_it_was_truncated() {
    let open = |reason| {
        let mut turn = TurnBuilder::new();
        turn.start_tool_call(0, "a", "t");
        turn.push_tool_call_args(0, "{}");
        turn.stop(reason, "");
        turn.complete().map_err(|error| error.kind())
    };
    assert_eq!(open(StopReason::ToolCalls), Err(ErrorKind::Protocol));
    assert_eq!(open(StopReason::Stop), Err(ErrorKind::Protocol));
    assert_eq!(open(StopReason::MaxTokens), Ok(()));
}

#[test]
fn pieces_after_the_end_are_ignored() {
    let mut turn = TurnBuilder::new();
    turn.stop(StopReason::Stop, "");
    turn.complete().unwrap();
    turn.push_text(0, "late");
    turn.start_tool_call(0, "a", "t");
    assert_eq!(drain(&mut turn).len(), 1);
}

#[test]
fn no_event_follows_the_completion_of_a_turn_whatever_is_added() {
    let data = || ProviderData {
        provider: "p".into(),
        model: "m".into(),
        value: serde_json::json!({}).into(),
    };
    let usage = Usage { output_tokens: 9, ..Usage::default() };
    let additions: [&dyn Fn(&mut TurnBuilder); 12] = [
        &|turn| turn.push_text(0, "late"),
        &|turn| turn.push_refusal(1, "late"),
        &|turn| turn.push_reasoning(0, "late", ReasoningKind::Trace),
        &|turn| turn.set_reasoning_data(1, data()),
        &|turn| turn.push_provider_item(data()),
        &|turn| turn.set_usage(usage),
        &|turn| turn.push_tool_call_args(0, "late"),
        &|turn| turn.end_tool_call(0),
        &|turn| call(turn, 1, "b", "t", "{}"),
        &|turn| turn.retract("late"),
        &|turn| {
            let error = Error::new(ErrorKind::Overloaded, "busy");
            turn.report_retry(1, Duration::ZERO, error);
        },
        &|turn| turn.complete().unwrap(),
    ];
    let complete = || {
        let mut turn = TurnBuilder::new();
        turn.start_tool_call(0, "a", "t");
        turn.end_tool_call(0);
        turn.stop(StopReason::ToolCalls, "");
        turn.complete().unwrap();
        let events = drain(&mut turn);
        (turn, events)
    };
    for (number, add) in additions.into_iter().enumerate() {
        let mut turn = complete().0;
        add(&mut turn);
        assert_eq!((drain(&mut turn), turn.is_complete()), (Vec::new(), true), "{number}");
    }
    // The events of another stream.
    let (mut turn, events) = complete();
    let absorbed = [TurnEvent::UsageUpdate { usage }].into_iter().chain(events);
    absorbed.for_each(|event| turn.absorb(event));
    assert_eq!(drain(&mut turn), []);
}

#[test]
fn a_turn_deserialized_from_json_never_becomes_runnable() {
    let mut first = TurnBuilder::new();
    call(&mut first, 0, "a", "t", "{}");
    first.stop(StopReason::ToolCalls, "");
    first.complete().unwrap();
    let Some(TurnEvent::TurnComplete { turn }) = drain(&mut first).pop() else { panic!() };
    assert!(turn.calls().veto().is_none());
    let json = serde_json::to_string(&turn).unwrap();
    let read: Turn = serde_json::from_str(&json).unwrap();
    assert_eq!(read, *turn);
    assert!(read.calls().veto().is_some());
    let mut second = TurnBuilder::for_history(&history_with_call("a"));
    second.absorb(TurnEvent::TurnComplete { turn: Arc::new(read) });
    let Some(TurnEvent::TurnComplete { turn }) = drain(&mut second).pop() else { panic!() };
    assert_eq!(turn.tool_calls().next().unwrap().call_id, "a_dup1");
    assert!(turn.calls().veto().is_some());
}

#[test]
fn a_turn_with_too_many_items_is_too_large() {
    for start in [
        |turn: &mut TurnBuilder, n: u32| turn.push_text(n, "x"),
        |turn: &mut TurnBuilder, n: u32| turn.start_tool_call(n, "", "add"),
    ] {
        let mut turn = TurnBuilder::new();
        for n in 0..20_000 {
            start(&mut turn, n);
        }
        turn.stop(StopReason::Stop, "stop");
        let error = turn.complete().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let partial = error.find_source::<PartialTurn>().expect("what there was");
        assert_eq!(partial.items().len(), MAX_ITEMS + 1);
    }
}

#[test]
fn a_turn_of_more_bytes_than_its_limit_is_too_large() {
    type Push<'a> = dyn Fn(&mut TurnBuilder, u32) + 'a;

    let data = |n: usize| ProviderData {
        provider: "p".to_owned(),
        model: "m".to_owned(),
        value: serde_json::Value::from("x".repeat(n)).into(),
    };
    let delta = || TurnEvent::TextDelta { index: 0, text: "x".repeat(10).into() };
    let pieces: [&Push<'_>; 9] = [
        &|turn, _| turn.push_text(0, &"x".repeat(10)),
        &|turn, _| turn.push_refusal(0, &"x".repeat(10)),
        &|turn, _| turn.push_reasoning(0, &"x".repeat(10), ReasoningKind::Trace),
        &|turn, n| match n {
            0 => turn.start_tool_call(0, "a", "t"),
            _ => turn.push_tool_call_args(0, &"x".repeat(10)),
        },
        // Held back, since it may be the same call as the first.
        &|turn, n| match n {
            0 | 1 => turn.start_tool_call(n, "a", "t"),
            _ => turn.push_tool_call_args(1, &"x".repeat(10)),
        },
        &|turn, n| turn.start_tool_call(n, "a", &"x".repeat(10)),
        &|turn, _| turn.push_provider_item(data(10)),
        &|turn, n| turn.set_reasoning_data(n, data(10)),
        &|turn, _| turn.absorb(delta()),
    ];
    for (at, push) in pieces.into_iter().enumerate() {
        let mut turn = TurnBuilder::new().with_max_bytes(100);
        let mut n = 0;
        while !turn.is_finished() {
            push(&mut turn, n);
            n += 1;
            assert!(n < 20, "piece {at} is not counted");
        }
        let events: usize = drain(&mut turn).len();
        push(&mut turn, 0);
        assert_eq!(drain(&mut turn).len(), 0, "after {events} events nothing more is taken");
        turn.stop(StopReason::Stop, "stop");
        let error = turn.complete().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "piece {at}");
        assert!(error.to_string().contains("100 bytes"), "{error}");
        let partial = error.find_source::<PartialTurn>().expect("what there was");
        assert!(partial.text().len() <= 100);
    }
}

#[test]
fn retracted_output_does_not_count_toward_the_byte_limit() {
    let mut turn = TurnBuilder::new().with_max_bytes(100);
    for _ in 0..5 {
        turn.push_text(0, &"x".repeat(60));
        turn.retract("again");
    }
    turn.push_text(0, &"x".repeat(100));
    turn.stop(StopReason::Stop, "stop");
    turn.complete().unwrap();
}

#[test]
fn a_complete_turn_passed_after_its_events_counts_only_once() {
    let made = |bytes: usize| {
        let mut turn = TurnBuilder::new();
        turn.set_usage(Usage { output_tokens: 7, ..Usage::default() });
        turn.push_text(0, &"x".repeat(bytes));
        call(&mut turn, 0, "a", "t", "{}");
        turn.stop(StopReason::ToolCalls, "stop");
        turn.complete().unwrap();
        drain(&mut turn)
    };
    for only_its_end in [false, true] {
        for (bytes, fits) in [(96, true), (97, false)] {
            let mut turn = TurnBuilder::new().with_max_bytes(100);
            let events = made(bytes);
            let skipped = if only_its_end { events.len() - 1 } else { 0 };
            events.into_iter().skip(skipped).for_each(|event| turn.absorb(event));
            assert_eq!(turn.is_complete(), fits, "{bytes} bytes");
            if !fits {
                let error = turn.fail_incomplete(None);
                assert_eq!(error.kind(), ErrorKind::TooLarge);
                let partial = error.find_source::<PartialTurn>().expect("what there was");
                assert_eq!(partial.usage().output_tokens, 7, "it is paid for");
            }
        }
    }
}

#[test]
fn a_retry_is_reported_only_before_any_output() {
    let busy = || Error::new(ErrorKind::Overloaded, "busy");
    let is_report = |event: &TurnEvent| matches!(event, TurnEvent::Retrying { .. });
    let mut turn = TurnBuilder::new();
    turn.report_retry(1, Duration::from_secs(3), busy());
    turn.set_usage(Usage { input_tokens: 5, ..Usage::default() });
    turn.report_retry(2, Duration::MAX, busy());
    let reports: Vec<_> = drain(&mut turn).into_iter().filter(is_report).collect();
    let report =
        |attempt, delay_ms| TurnEvent::Retrying { attempt, delay_ms, error: Arc::new(busy()) };
    assert_eq!(reports, [report(1, 3000), report(2, u64::MAX)]);

    turn.push_text(0, "It is ");
    turn.report_retry(3, Duration::ZERO, busy());
    turn.absorb(report(3, 0));
    assert!(!drain(&mut turn).iter().any(is_report), "it would have to be retracted first");
    turn.retract("busy");
    turn.report_retry(3, Duration::ZERO, busy());
    assert!(drain(&mut turn).iter().any(is_report));
    turn.stop(StopReason::Stop, "");
    turn.complete().unwrap();
    turn.report_retry(4, Duration::ZERO, busy());
    assert!(!drain(&mut turn).iter().any(is_report), "the turn is complete");
}

/// The stop reason, the raw stop reason, and whether calls may run, of a turn with these arguments
/// that used `used` of the `allowed` output tokens.
fn ended(
    reason: StopReason,
    allowed: Option<u32>,
    used: u64,
    arguments: &[&str],
) -> (StopReason, Option<String>, bool) {
    let mut turn = TurnBuilder::new().with_max_output_tokens(allowed);
    for (key, arguments) in (0..).zip(arguments) {
        call(&mut turn, key, "", "t", arguments);
    }
    turn.set_usage(Usage { output_tokens: used, ..Usage::default() });
    turn.stop(reason, "word");
    turn.complete().unwrap();
    let Some(TurnEvent::TurnComplete { turn }) = drain(&mut turn).pop() else { panic!("no turn") };
    let raw = turn.raw_stop_reason().map(str::to_owned);
    (turn.stop_reason().clone(), raw, turn.calls().veto().is_none())
}

#[test]
fn a_call_cut_off_by_the_output_limit_is_truncated_under_any_stop_reason() {
    const CUT: &str = r#"{"path":"/a"#;
    let other = || StopReason::Other("odd".into());
    for reason in [StopReason::ToolCalls, StopReason::Stop, other()] {
        let truncated = (StopReason::MaxTokens, Some("word".to_owned()), false);
        let check = |used, arguments: &[&str]| {
            assert_eq!(ended(reason.clone(), Some(50), used, arguments), truncated);
        };
        check(50, &[CUT]);
        // Servers may count a token more than they allow.
        check(51, &[CUT]);
        check(50, &["{}", CUT]);
        check(50, &["nonsense", "{}"]);
    }
    // The server's report of any other stop reason is kept.
    for reason in [StopReason::ContentFilter, StopReason::Refusal, StopReason::Pause] {
        assert_eq!(ended(reason.clone(), Some(50), 50, &[CUT]).0, reason);
    }
}

#[test]
fn the_servers_stop_reason_holds_unless_a_truncation_is_proven() {
    const CUT: &str = r#"{"path":"/a"#;
    let as_told = (StopReason::ToolCalls, Some("word".to_owned()), true);
    let check = |allowed, used, arguments: &[&str]| {
        assert_eq!(ended(StopReason::ToolCalls, allowed, used, arguments), as_told);
    };
    check(Some(50), 49, &[CUT]);
    check(None, 50, &[CUT]);
    // The server does not count tokens.
    check(Some(50), 0, &[CUT]);
    check(Some(0), 0, &[CUT]);
    // These arguments may be complete.
    check(Some(50), 50, &["{}", "", "null", r#"{"path":"/a"}"#, "[]"]);
    check(Some(50), 50, &[]);
}

#[test]
fn an_unfinished_call_is_truncated_at_the_output_limit_and_an_error_below() {
    for (used, expected) in [(50, Ok(StopReason::MaxTokens)), (49, Err(ErrorKind::Protocol))] {
        let mut turn = TurnBuilder::new().with_max_output_tokens(50);
        turn.start_tool_call(0, "a", "t");
        turn.push_tool_call_args(0, "{}");
        turn.set_usage(Usage { output_tokens: used, ..Usage::default() });
        turn.stop(StopReason::ToolCalls, "");
        let ended = turn.complete().map_err(|error| error.kind());
        let reason = ended.map(|()| match drain(&mut turn).pop() {
            Some(TurnEvent::TurnComplete { turn }) => turn.stop_reason().clone(),
            other => panic!("no turn: {other:?}"),
        });
        assert_eq!(reason, expected);
    }
}

#[test]
fn a_truncated_duplicate_call_truncates_the_turn() {
    let mut turn = TurnBuilder::new().with_max_output_tokens(50);
    turn.start_tool_call(0, "a", "t");
    turn.start_tool_call(1, "a", "t");
    turn.push_tool_call_args(1, r#"{"path":"/a"#);
    turn.end_tool_call(1);
    turn.end_tool_call(0);
    turn.set_usage(Usage { output_tokens: 50, ..Usage::default() });
    turn.stop(StopReason::ToolCalls, "");
    turn.complete().unwrap();
    let Some(TurnEvent::TurnComplete { turn }) = drain(&mut turn).pop() else { panic!("no turn") };
    assert_eq!((turn.stop_reason(), turn.calls().len()), (&StopReason::MaxTokens, 2));
}
