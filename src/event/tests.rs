use super::*;
use crate::error::{Error, ErrorKind};
use crate::item::{
    EffectReport, History, Item, Part, PendingCall, RawJson, ResultKind, SideEffect, ToolCall,
    ToolResult,
};
use crate::turn::{ReasoningKind, StopReason, TurnBuilder, TurnEvent};
use crate::usage::Usage;

fn round_trip(event: &Event, json: &str) {
    assert_eq!(serde_json::to_string(event).unwrap(), json);
    assert_eq!(&serde_json::from_str::<Event>(json).unwrap(), event);
    let value = serde_json::to_value(event).unwrap();
    assert_eq!(&serde_json::from_value::<Event>(value).unwrap(), event);
}

fn outcome(reason: EndReason, error: Option<Error>) -> Event {
    Event::Finished(Box::new(Outcome {
        reason,
        partial: reason.is_partial(),
        unknown_stop_reason: None,
        text: "t".into(),
        turns: 2,
        usage: Usage::default(),
        new_items: [Item::user("u")].into(),
        error,
        pending: Vec::new(),
        undelivered: Vec::new(),
        evidence: Box::default(),
        proof: None,
        unproven: None,
        stop_action: None,
        budget: None,
        nested_usage: Box::default(),
        cost: None,
        cost_gaps: Box::default(),
        nested_cost: None,
        nested_cost_gaps: Box::default(),
        why: None,
        history: History::empty("h"),
    }))
}

const NO_USAGE: &str = r#"{"input_tokens":0,"output_tokens":0,"cache_read_input_tokens":0,"cache_write_input_tokens":0,"reasoning_tokens":0}"#;

#[test]
fn the_events_of_a_turn_are_flat_objects() {
    round_trip(
        &TurnEvent::TextDelta { index: 0, text: "…".into() }.into(),
        r#"{"type":"text_delta","index":0,"text":"…"}"#,
    );
    round_trip(
        &TurnEvent::ReasoningDelta { index: 1, text: "h".into(), kind: ReasoningKind::Trace }
            .into(),
        r#"{"type":"reasoning_delta","index":1,"text":"h","kind":"trace"}"#,
    );
    round_trip(
        &TurnEvent::ToolCallArgsDelta { call_id: "c".into(), delta: "{".into() }.into(),
        r#"{"type":"tool_call_args_delta","call_id":"c","delta":"{"}"#,
    );
    round_trip(
        &TurnEvent::UsageUpdate { usage: Usage::default() }.into(),
        &format!(r#"{{"type":"usage_update","usage":{NO_USAGE}}}"#),
    );
    round_trip(
        &TurnEvent::Retracted { why: "w".into(), usage: Usage::default().into() }.into(),
        &format!(r#"{{"type":"retracted","why":"w","usage":{NO_USAGE}}}"#),
    );
    let error = Error::new(ErrorKind::RateLimited, "slow down").with_status(429);
    round_trip(
        &TurnEvent::Retrying { attempt: 1, delay_ms: 3000, error: error.into() }.into(),
        r#"{"type":"retrying","attempt":1,"delay_ms":3000,"error":{"kind":"rate_limited","message":"slow down","status":429}}"#,
    );
}

#[test]
fn a_complete_turn_round_trips() {
    let mut turn = TurnBuilder::new();
    turn.set_model("m");
    turn.push_text(0, "hi");
    turn.start_tool_call(1, "c1", "add");
    turn.end_tool_call(1);
    turn.stop(StopReason::ToolCalls, "tool_use");
    turn.complete().unwrap();
    let complete = std::iter::from_fn(|| turn.next_event()).last().unwrap();
    round_trip(
        &complete.into(),
        &format!(
            r#"{{"type":"turn_complete","turn":{{"items":[{{"type":"text","text":"hi"}},{{"type":"tool_call","call_id":"c1","name":"add","arguments":""}}],"stop_reason":"tool_calls","raw_stop_reason":"tool_use","usage":{NO_USAGE},"model":"m"}}}}"#
        ),
    );
}

#[test]
fn the_events_of_tools_are_flat_objects() {
    let call = ToolCall { call_id: "c".into(), name: "n".into(), arguments: "{}".into() };
    round_trip(
        &ToolEvent::ApprovalRequested(Box::new(PendingCall {
            approval_id: "a".into(),
            definition: "d".into(),
            ..call.clone().into()
        }))
        .into(),
        r#"{"type":"approval_requested","approval_id":"a","call_id":"c","name":"n","arguments":"{}","definition":"d"}"#,
    );
    round_trip(
        &ToolEvent::Started {
            call_id: "c".into(),
            name: "n".into(),
            arguments: "{}".into(),
            grant_id: None,
        }
        .into(),
        r#"{"type":"tool_started","call_id":"c","name":"n","arguments":"{}"}"#,
    );
    let data = RawJson::parse(r#"{"a":2,"z":1}"#).unwrap();
    round_trip(
        &ToolEvent::Progress { call_id: "c".into(), name: "n".into(), data }.into(),
        r#"{"type":"tool_progress","call_id":"c","name":"n","data":{"a":2,"z":1}}"#,
    );
    round_trip(
        &ToolEvent::Output(ToolResult::for_call(&call, ResultKind::Denied, vec![Part::from("no")]))
            .into(),
        r#"{"type":"tool_output","call_id":"c","name":"n","is_error":true,"kind":"denied","content":[{"type":"text","text":"no"}]}"#,
    );
}

#[test]
fn the_events_of_a_run_are_flat_objects() {
    round_trip(
        &Event::Appended {
            why: AppendReason::FollowUp,
            id: "i".into(),
            items: vec![Item::user("u")],
        },
        r#"{"type":"appended","why":"follow_up","id":"i","items":[{"type":"user","content":"u"}]}"#,
    );
    let rewritten = |usage, model| Event::Rewritten {
        why: RewriteReason::Compacted,
        from: 3,
        to: 17,
        items: Vec::new(),
        usage: Box::new(usage),
        model,
    };
    round_trip(
        &rewritten(Usage::default(), None),
        r#"{"type":"rewritten","why":"compacted","from":3,"to":17,"items":[]}"#,
    );
    round_trip(
        &rewritten(Usage::default(), Some("m".into())),
        r#"{"type":"rewritten","why":"compacted","from":3,"to":17,"items":[],"model":"m"}"#,
    );
    round_trip(
        &rewritten(Usage { input_tokens: 9, output_tokens: 2, ..Usage::default() }, None),
        r#"{"type":"rewritten","why":"compacted","from":3,"to":17,"items":[],"usage":{"input_tokens":9,"output_tokens":2,"cache_read_input_tokens":0,"cache_write_input_tokens":0,"reasoning_tokens":0}}"#,
    );
    let started = Event::TurnStarted { turn: 1, model: "m".into(), transition: None };
    round_trip(&started, r#"{"type":"turn_started","turn":1,"model":"m","transition":null}"#);
    round_trip(
        &Event::Nested { call_id: "c".into(), name: "n".into(), event: Box::new(started) },
        r#"{"type":"nested","call_id":"c","name":"n","event":{"type":"turn_started","turn":1,"model":"m","transition":null}}"#,
    );
    round_trip(
        &Event::Continued { reason: Transition::MaxOutputTokensRecovery },
        r#"{"type":"continued","reason":"max_output_tokens_recovery"}"#,
    );
}

#[test]
fn an_outcome_has_a_phase_only_when_interrupted() {
    let rest = r#""pending":[],"undelivered":[],"evidence":[]"#;
    round_trip(
        &outcome(EndReason::Completed, None),
        &format!(
            r#"{{"type":"finished","outcome":{{"reason":"completed","partial":false,"text":"t","turns":2,"usage":{NO_USAGE},"new_items":[{{"type":"user","content":"u"}}],"error":null,{rest}}}}}"#
        ),
    );
    round_trip(
        &outcome(EndReason::Interrupted(InterruptedPhase::Tools), None),
        &format!(
            r#"{{"type":"finished","outcome":{{"reason":"interrupted","phase":"tools","partial":true,"text":"t","turns":2,"usage":{NO_USAGE},"new_items":[{{"type":"user","content":"u"}}],"error":null,{rest}}}}}"#
        ),
    );
    let error = Error::new(ErrorKind::RateLimited, "slow").with_status(429);
    round_trip(
        &outcome(EndReason::ProviderError, Some(error)),
        &format!(
            r#"{{"type":"finished","outcome":{{"reason":"provider_error","partial":true,"text":"t","turns":2,"usage":{NO_USAGE},"new_items":[{{"type":"user","content":"u"}}],"error":{{"kind":"rate_limited","message":"slow","status":429}},{rest}}}}}"#
        ),
    );
}

#[test]
fn an_event_of_a_later_version_is_unknown_and_never_written() {
    let event: Event = serde_json::from_str(r#"{"type":"teleported","to":"moon"}"#).unwrap();
    assert_eq!(event, Event::Unknown);
    assert!(serde_json::to_string(&event).is_err());
}

#[test]
fn a_known_event_with_a_wrong_field_is_an_error_not_unknown() {
    let wrong = serde_json::from_str::<Event>(r#"{"type":"text_delta","index":"x"}"#);
    assert!(wrong.is_err());
}

#[test]
fn into_result_returns_the_outcome_or_an_error_with_its_reason() {
    let Event::Finished(completed) = outcome(EndReason::Completed, None) else { panic!() };
    assert!(completed.into_result().is_ok());
    let Event::Finished(capped) = outcome(EndReason::MaxTurns, None) else { panic!() };
    let error = capped.into_result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfinished);
    assert_eq!(format!("{error:#}"), "the run ended early: max_turns");
    assert_eq!(error.find_source::<UnfinishedRun>().unwrap().outcome.turns, 2);
    let own = Error::new(ErrorKind::Auth, "no");
    let Event::Finished(failed) = outcome(EndReason::ProviderError, Some(own.clone())) else {
        panic!()
    };
    assert_eq!(failed.into_result().unwrap_err(), own);
}

#[test]
fn event_size_stays_within_its_limit() {
    assert!(size_of::<Event>() <= 104, "{}", size_of::<Event>());
}

#[test]
fn budget_and_nested_usage_are_serialized_only_if_set() {
    let exceeded =
        BudgetExceeded { kind: BudgetKind::Pool, used: 12, limit: 10, diminishing_returns: false };
    let nested_usage = Box::new(Usage { input_tokens: 3, ..Usage::default() });
    let Event::Finished(outcome) = outcome(EndReason::Budget, None) else { panic!("no outcome") };
    let why = Some("enough".to_owned());
    let budget = Some(Box::new(exceeded));
    let (cost, nested_cost) = (Some(7), Some(9));
    let outcome = Outcome { why, nested_usage, cost, nested_cost, budget, ..*outcome };
    let written = serde_json::to_string(&outcome).unwrap();
    assert!(written.contains(r#""budget":{"kind":"pool","used":12,"limit":10}"#), "{written}");
    assert!(written.contains(r#""nested_usage":{"input_tokens":3,"#), "{written}");
    assert!(written.contains(r#""cost":7,"nested_cost":9,"#), "{written}");
    assert!(written.contains(r#""why":"enough","#), "{written}");
    assert_eq!(serde_json::from_str::<Outcome>(&written).unwrap(), outcome);
}

#[test]
fn a_report_is_flattened_into_its_tool_result() {
    let report = EffectReport {
        side_effects: vec![SideEffect::of_creation("42")],
        evidence: vec![serde_json::json!({ "exit_code": 0 }).into()],
    };
    let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: String::new() };
    let result = ToolResult::for_call(&call, ResultKind::Ok, "x").with_report(report);
    round_trip(
        &ToolEvent::Output(result).into(),
        r#"{"type":"tool_output","call_id":"c","name":"t","is_error":false,"kind":"ok","content":"x","side_effects":[{"kind":"created","target":"42"}],"evidence":[{"exit_code":0}]}"#,
    );
}

#[test]
fn sub_agent_events_are_nested_whatever_their_source() {
    let event = || Box::new(Event::Continued { reason: Transition::Retry });
    let (call_id, name) = (String::from("c"), String::from("n"));
    let tool = ToolEvent::Nested { call_id: call_id.clone(), name: name.clone(), event: event() };
    round_trip(
        &Event::from(tool),
        r#"{"type":"nested","call_id":"c","name":"n","event":{"type":"continued","reason":"retry"}}"#,
    );
}

#[test]
fn nesting_beyond_the_depth_limit_is_a_deserialization_error() {
    let nested = |levels: usize| {
        let inner = r#"{"type":"continued","reason":"retry"}"#;
        let before = r#"{"type":"nested","call_id":"c","name":"n","event":"#;
        format!("{}{inner}{}", before.repeat(levels), "}".repeat(levels))
    };
    let read = |levels| serde_json::from_str::<Event>(&nested(levels));
    for _ in 0..2 {
        assert!(read(20).is_ok());
        let error = read(5_000).unwrap_err().to_string();
        assert!(error.contains("recursion limit"), "{error}");
    }
}
