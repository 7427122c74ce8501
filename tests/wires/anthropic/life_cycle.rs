//! The life cycle of a message: its frames, its blocks, and its end or a missing end.

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use turnstream::provider::{Decoding, anthropic};
use turnstream::stream::seal;
use turnstream::turn::{PartialTurn, TurnEvent};
use turnstream::{ErrorKind, History};

use super::fixture::*;

const TEXT_BLOCK: &str = r#"{"type":"text","text":""}"#;

fn hello_events() -> Vec<String> {
    let events = [
        MESSAGE_START.into(),
        content_block_start(0, TEXT_BLOCK),
        text_delta(0, "Hel"),
        text_delta(0, "lo"),
        content_block_stop(0),
    ];
    [&events[..], &[message_delta("end_turn"), MESSAGE_STOP.into()]].concat()
}

#[test]
fn a_ping_is_ignored_at_any_position() {
    let whole = decode_turn(&hello_events()).unwrap();
    assert_eq!(whole.text(), "Hello");
    for at in 0..=hello_events().len() {
        let mut events = hello_events();
        events.insert(at, r#"{"type":"ping"}"#.into());
        assert_eq!(decode_turn(&events).unwrap(), whole, "at {at}");
    }
}

#[test]
fn an_unknown_event_or_delta_is_ignored() {
    let whole = decode_turn(&hello_events()).unwrap();
    for (at, unknown) in [
        (0, r#"{"type":"message_hologram","delta":{"text":"no"}}"#.to_owned()),
        (1, r#"{"type":"mood","message":{"id":"msg_9"}}"#.to_owned()),
        (2, content_block_delta(0, r#"{"type":"smell_delta","text":"no"}"#)),
        (3, content_block_delta(7, r#"{"type":"text_delta","text":"of no block"}"#)),
    ] {
        let mut events = hello_events();
        events.insert(at, unknown);
        assert_eq!(decode_turn(&events).unwrap(), whole, "at {at}");
    }
}

#[test]
fn an_unknown_block_is_kept_verbatim() {
    let hologram = r#"{"type":"hologram","z":[1,{"y":"\"{"}],"a":null}"#;
    let events = [
        content_block_start(0, hologram),
        content_block_delta(0, r#"{"type":"tilt_delta","tilt":3}"#),
        content_block_stop(0),
    ];
    let turn = decode_message(&events, "end_turn");
    assert_eq!(provider_item_texts(&turn), [hologram]);
    assert!(encode_items(items_with_follow_up(&turn)).contains(hologram));
}

#[test]
fn the_type_field_replaces_a_missing_event_name() {
    let body: String = hello_events().iter().flat_map(|data| ["data: ", data, "\n\n"]).collect();
    assert_eq!(decode_body(body).unwrap(), decode_turn(&hello_events()).unwrap());
}

#[test]
fn the_event_name_replaces_a_missing_type_field() {
    let body = sse_body(&hello_events()).replace(r#""type":"message_stop""#, "");
    let body = body.replace(r#""type":"content_block_delta","#, "");
    assert_eq!(decode_body(body).unwrap(), decode_turn(&hello_events()).unwrap());
}

#[test]
fn blocks_are_distinguished_by_index_with_gaps_and_interleaving() {
    let call = r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#;
    let turn = decode_message(
        &[
            content_block_start(7, TEXT_BLOCK),
            content_block_start(2, call),
            text_delta(7, "a"),
            input_json_delta(2, "{\"x\""),
            text_delta(7, "b"),
            input_json_delta(2, ":1}"),
            content_block_stop(2),
            text_delta(7, "c"),
            content_block_stop(7),
        ],
        "tool_use",
    );
    assert_eq!(turn.text(), "abc");
    assert_eq!(turn.tool_calls().next().unwrap().arguments, r#"{"x":1}"#);
}

#[test]
fn a_text_block_may_begin_with_text() {
    let turn =
        decode_one_block(r#"{"type":"text","text":"So "}"#, &[text_delta(0, "it is.")], "end_turn");
    assert_eq!(turn.text(), "So it is.");
}

#[test]
fn a_null_message_and_untyped_frames_are_ignored() {
    let mut events = hello_events();
    events.insert(1, r#"{"type":"message_start","message":null}"#.into());
    events.insert(2, r#"{"amazon-bedrock-invocationMetrics":{"inputTokenCount":3}}"#.into());
    events.insert(3, r#"{"delta":null,"index":0}"#.into());
    assert_eq!(decode_turn(&events).unwrap(), decode_turn(&hello_events()).unwrap());
}

#[test]
fn a_repeated_message_start_counts_once() {
    let mut events = hello_events();
    events.insert(3, MESSAGE_START.into());
    assert_eq!(decode_turn(&events).unwrap(), decode_turn(&hello_events()).unwrap());
}

#[test]
fn a_second_message_inside_the_first_is_an_error() {
    let mut events = hello_events();
    events.insert(3, MESSAGE_START.replace("msg_1", "msg_2"));
    let error = decode_turn(&events).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[test]
fn several_messages_in_one_response_are_one_turn() {
    let called = |id: &str, name: &str| {
        let caller = r#"{"type":"code_execution_20260120","tool_id":"s1"}"#;
        let call = format!(
            r#"{{"type":"tool_use","id":"{name}","name":"{name}","input":{{"n":1}},"caller":{caller}}}"#
        );
        let usage = r#""usage":{"input_tokens":3,"output_tokens":2}"#;
        let reason = r#""stop_reason":"tool_use""#;
        format!(
            r#"{{"type":"message_start","message":{{"id":"{id}","content":[{call}],{reason},{usage}}}}}"#
        )
    };
    let again = MESSAGE_START.replace("msg_1", "msg_3");
    let turn = decode_turn(&[
        called("msg_1", "f"),
        MESSAGE_STOP.into(),
        called("msg_2", "g"),
        MESSAGE_STOP.into(),
        again,
        content_block_start(0, TEXT_BLOCK),
        text_delta(0, "Wait."),
        content_block_stop(0),
        message_delta("max_tokens"),
        MESSAGE_STOP.into(),
    ])
    .unwrap();
    let names: Vec<_> = turn.tool_calls().map(|call| call.name.as_str()).collect();
    assert_eq!((names, turn.text().as_str()), (vec!["f", "g"], "Wait."));
    // The last stop reason is the last message's, and the usage of all messages counts.
    assert_eq!(turn.raw_stop_reason(), Some("max_tokens"));
    assert!(turn.calls().veto().is_some());
    assert_eq!((turn.usage().input_tokens, turn.usage().output_tokens), (16, 5));
    assert_eq!(turn.response_id(), Some("msg_1"));
}

#[test]
fn blocks_of_several_messages_are_not_mixed_up() {
    let mut events = hello_events();
    events.extend(hello_events().iter().map(|event| event.replace("msg_1", "msg_2")));
    let turn = decode_turn(&events).unwrap();
    let texts: Vec<_> = turn.items().iter().filter_map(|item| item.as_text()).collect();
    assert_eq!(texts, ["Hello", "Hello"]);
}

#[test]
fn a_message_after_the_end_needs_its_own_end() {
    let mut events = hello_events();
    events.push(MESSAGE_START.replace("msg_1", "msg_2"));
    events.push(content_block_start(0, TEXT_BLOCK));
    let error = decode_turn(&events).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn other_events_after_the_end_change_nothing() {
    let mut events = hello_events();
    events.extend([
        MESSAGE_START.into(),
        text_delta(0, "no"),
        message_delta("max_tokens"),
        MESSAGE_STOP.into(),
    ]);
    assert_eq!(decode_turn(&events).unwrap(), decode_turn(&hello_events()).unwrap());
}

#[test]
fn a_stop_reason_completes_the_turn_without_message_stop() {
    let events = hello_events();
    assert_eq!(decode_turn(&events[..events.len() - 1]).unwrap(), decode_turn(&events).unwrap());
}

#[test]
fn without_stop_reason_and_message_stop_the_turn_is_incomplete() {
    let events = hello_events();
    let error = decode_turn(&events[..events.len() - 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
    assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "Hello");
}

#[test]
fn an_error_anywhere_in_the_stream_is_the_turns_error() {
    #[track_caller]
    fn check(kind: &str, expected: ErrorKind) {
        let event = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"why"}}}}"#);
        for at in 0..hello_events().len() - 1 {
            let mut events = hello_events();
            events.insert(at, event.clone());
            let error = decode_turn(&events).unwrap_err();
            assert_eq!(error.kind(), expected, "{kind} at {at}");
            assert!(error.message().ends_with("why"), "{error}");
        }
    }
    check("overloaded_error", ErrorKind::Overloaded);
    check("rate_limit_error", ErrorKind::RateLimited);
    check("api_error", ErrorKind::Server);
    check("authentication_error", ErrorKind::Auth);
    check("permission_error", ErrorKind::Auth);
    check("billing_error", ErrorKind::Billing);
    check("timeout_error", ErrorKind::Timeout);
    check("invalid_request_error", ErrorKind::InvalidRequest);
}

#[test]
fn events_of_a_second_message_are_yielded_immediately() {
    let second = sse_body(&[MESSAGE_START.replace("msg_1", "msg_2")]);
    let chunks = [sse_body(&hello_events()), second].map(|chunk| Ok(Bytes::from(chunk)));
    let body = stream::iter(chunks).chain(stream::pending());
    let mut turn = seal(&History::empty("h"), Decoding::new(body, anthropic::Decoder::new(MODEL)));
    let mut counted = 0;
    while let Some(event) = turn.next().now_or_never() {
        if let TurnEvent::UsageUpdate { usage } = event.unwrap().unwrap() {
            counted = usage.input_tokens;
        }
    }
    assert_eq!(counted, 20);
}
