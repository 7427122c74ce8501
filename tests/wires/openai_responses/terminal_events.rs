//! How a response ends.

use super::*;
use turnstream::ErrorKind;
use turnstream::turn::StopReason;

fn response_incomplete(details: impl Into<Value>) -> Value {
    let details = details.into();
    json!({ "type": "response.incomplete", "response":
        { "status": "incomplete", "incomplete_details": details, "output": [] } })
}

#[track_caller]
fn check_stop_reason(end: Value, reason: &StopReason, raw: &str) {
    let turn = decode_turn(&[text_delta(0, "a"), end]).unwrap();
    assert_eq!((turn.stop_reason(), turn.raw_stop_reason()), (reason, Some(raw)));
    assert_eq!(item_summaries(&turn), ["text a"]);
}

#[test]
fn the_terminal_event_determines_the_stop_reason() {
    check_stop_reason(response_completed(json!([])), &StopReason::Stop, "completed");
    let reason = |reason: &str| response_incomplete(json!({ "reason": reason }));
    check_stop_reason(reason("max_output_tokens"), &StopReason::MaxTokens, "incomplete");
    check_stop_reason(reason("content_filter"), &StopReason::ContentFilter, "incomplete");
    check_stop_reason(reason("max_messages"), &StopReason::MaxTokens, "incomplete");
    check_stop_reason(reason("steered"), &StopReason::Other("steered".into()), "incomplete");
    check_stop_reason(reason("moon_phase"), &StopReason::Other("moon_phase".into()), "incomplete");
    check_stop_reason(
        response_incomplete(Value::Null),
        &StopReason::Other("incomplete".into()),
        "incomplete",
    );
}

#[test]
fn the_status_field_overrides_the_event_name() {
    let end = |kind: &str, response: Value| json!({ "type": kind, "response": response });
    let details = json!({ "reason": "max_output_tokens" });
    check_stop_reason(
        end("response.completed", json!({ "status": "incomplete", "incomplete_details": details })),
        &StopReason::MaxTokens,
        "incomplete",
    );
    check_stop_reason(
        end("response.completed", json!({ "status": "completed", "incomplete_details": details })),
        &StopReason::MaxTokens,
        "completed",
    );
    check_stop_reason(
        end("response.done", json!({ "status": "completed" })),
        &StopReason::Stop,
        "completed",
    );
    check_stop_reason(end("response.completed", Value::Null), &StopReason::Stop, "completed");
}

#[test]
fn calls_of_a_truncated_response_are_kept_and_do_not_run() {
    for end in ["max_output_tokens", "content_filter", "other"] {
        let turn = decode_turn(&[
            output_item_done(0, function_call_item("fc_1", "a", "{}")),
            output_item_added(1, function_call_item("fc_2", "b", "")),
            arguments_delta(1, r#"{"x":"#),
            response_incomplete(json!({ "reason": end })),
        ])
        .unwrap();
        assert_eq!(item_summaries(&turn), ["a f {}", r#"b f {"x":"#]);
        assert!(turn.calls().veto().is_some());
    }
}

#[test]
fn a_response_that_failed_is_an_error_with_its_kind() {
    let failed = |code: &str| {
        json!({ "type": "response.failed", "response": { "status": "failed",
            "error": { "code": code, "message": "it went wrong" }, "usage": null } })
    };
    let kind = |list: &[Value]| decode_turn(list).unwrap_err().kind();
    for before in [&[][..], &[response_created(), text_delta(0, "a")]] {
        let after = |end: Value| kind(&[before, &[end]].concat());
        assert_eq!(after(failed("server_error")), ErrorKind::Server);
        assert_eq!(after(failed("rate_limit_exceeded")), ErrorKind::RateLimited);
        assert_eq!(after(failed("context_length_exceeded")), ErrorKind::ContextWindow);
        assert_eq!(after(failed("insufficient_quota")), ErrorKind::Billing);
    }
    let error = decode_turn(&[failed("server_error")]).unwrap_err();
    assert!(error.message().contains("it went wrong"), "{error}");
    let untold =
        json!({ "type": "response.failed", "response": { "status": "failed", "error": null } });
    assert_eq!(kind(&[untold]), ErrorKind::Server);
}

#[test]
fn the_usage_of_a_failed_response_is_counted() {
    let failed = json!({ "type": "response.failed", "response": { "status": "failed",
        "usage": { "input_tokens": 3, "output_tokens": 4 } } });
    let counted = |event: &Result<TurnEvent, Error>| matches!(event, Ok(TurnEvent::UsageUpdate { usage }) if usage.total() == 7);
    assert!(decode_events(&[text_delta(0, "a"), failed]).iter().any(counted));
}

#[test]
fn an_error_event_is_decoded_in_both_shapes() {
    let flat = json!({ "type": "error", "code": "rate_limit_exceeded", "message": "slow down",
        "param": null, "sequence_number": 3 });
    let nested = json!({ "type": "error", "sequence_number": 3, "error":
        { "type": "tokens", "code": "rate_limit_exceeded", "message": "slow down", "param": null } });
    let mut untyped = nested.clone();
    untyped.as_object_mut().unwrap().shift_remove("type");
    for event in [flat, nested, untyped] {
        for before in [&[][..], &[response_created(), text_delta(0, "a")]] {
            let error = decode_turn(&[before, std::slice::from_ref(&event)].concat()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RateLimited, "{event}");
            assert!(error.message().ends_with("slow down"), "{error}");
        }
    }
}

#[test]
fn a_quota_error_inside_the_stream_is_a_billing_error_in_every_shape() {
    let message = "You exceeded your current quota, please check your plan and billing details.";
    let inner = json!({ "type": "insufficient_quota", "code": "insufficient_quota",
        "message": message, "param": null });
    for event in [
        json!({ "type": "error", "code": "insufficient_quota", "message": message }),
        json!({ "type": "error", "error": inner }),
        json!({ "type": "response.failed", "response": { "id": "r", "status": "failed",
            "error": { "code": "insufficient_quota", "message": message }, "output": [] } }),
        json!({ "error": inner }),
    ] {
        let error = decode_turn(&[response_created(), event.clone()]).unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Billing, false), "{event}");
        assert!(error.message().contains("quota"), "{error}");
    }
}

#[test]
fn refused_reasoning_inside_the_stream_has_its_kind() {
    let failed = json!({ "type": "response.failed", "response": { "status": "failed", "error":
        { "code": "invalid_encrypted_content", "message": "it could not be verified" } } });
    let error = decode_turn(&[response_created(), failed]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReasoningRefused);
}

#[test]
fn a_cancelled_response_is_an_incomplete_turn_with_partial_output() {
    let error =
        decode_turn(&[text_delta(0, "half"), terminal_event("cancelled", json!([]))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
    assert!(error.message().contains("cancelled"), "{error}");
    assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "half");
}

#[test]
fn a_stream_without_a_terminal_event_is_incomplete() {
    let said = [
        response_created(),
        output_item_done(0, message_item("m", "a")),
        output_item_done(1, function_call_item("fc_1", "c", "{}")),
    ];
    for end in ["", "data: [DONE]\n\n"] {
        let mut bytes = sse_body(&said);
        bytes.extend(end.bytes());
        let error = fold_turn(decode_events_with(Decoder::new(MODEL), bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
        let partial = error.find_source::<PartialTurn>().unwrap();
        assert_eq!(partial.text(), "a");
        assert_eq!(partial.items().len(), 2);
    }
}

#[test]
fn events_after_the_terminal_event_are_ignored() {
    let mut bytes =
        sse_body(&[text_delta(0, "a"), response_completed(json!([])), text_delta(0, "b")]);
    bytes.extend(b"data: [DONE]\n\ndata: nonsense\n\n");
    let turn = fold_turn(decode_events_with(Decoder::new(MODEL), bytes)).unwrap();
    assert_eq!(item_summaries(&turn), ["text a"]);
}

#[test]
fn a_connection_lost_after_the_terminal_event_does_not_fail_the_turn() {
    let broken = || Err(Error::new(ErrorKind::Connect, "reset"));
    let read = |list: &[Value]| {
        let body = stream::iter([Ok(Bytes::from(sse_body(list))), broken()]);
        let decoding = Decoding::new(body, Decoder::new(MODEL));
        fold_turn(block_on(seal(&History::empty("h"), decoding).collect()))
    };
    assert_eq!(
        item_summaries(&read(&[text_delta(0, "a"), response_completed(json!([]))]).unwrap()),
        ["text a"]
    );
    let error = read(&[text_delta(0, "a")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn malformed_or_missing_usage_does_not_fail_the_turn() {
    for usage in [Value::Null, json!("none"), json!({ "input_tokens": 3.0, "output_tokens": -1 })] {
        let end = json!({ "type": "response.completed", "response": { "usage": usage } });
        let turn = decode_turn(&[text_delta(0, "a"), end]).unwrap();
        assert_eq!(turn.usage().output_tokens, 0);
    }
}

/// Retracted usage counts once, not twice.
#[test]
fn a_retraction_carries_no_usage() {
    let list = [
        text_delta(0, "a"),
        output_item_done(0, message_item("m", "b")),
        json!({ "type": "response.completed", "response":
            { "usage": { "input_tokens": 3, "output_tokens": 4 } } }),
    ];
    for event in decode_events(&list) {
        if let TurnEvent::Retracted { usage, .. } = event.unwrap() {
            assert_eq!(usage.total(), 0);
        }
    }
    assert_eq!(decode_turn(&list).unwrap().usage().total(), 7);
}
