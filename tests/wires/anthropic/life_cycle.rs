//! How a message comes: its frames, its blocks, its end or what is there instead of one.

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use turnstream::provider::{Decoding, anthropic};
use turnstream::stream::seal;
use turnstream::turn::{PartialTurn, TurnEvent};
use turnstream::{ErrorKind, History};

use super::fixture::*;

const TEXT: &str = r#"{"type":"text","text":""}"#;

fn hello() -> Vec<String> {
    let events = [START.into(), begin(0, TEXT), text(0, "Hel"), text(0, "lo"), end(0)];
    [&events[..], &[stop("end_turn"), STOP.into()]].concat()
}

#[test]
fn a_ping_is_ignored_at_any_position() {
    let whole = read(&hello()).unwrap();
    assert_eq!(whole.text(), "Hello");
    for at in 0..=hello().len() {
        let mut events = hello();
        events.insert(at, r#"{"type":"ping"}"#.into());
        assert_eq!(read(&events).unwrap(), whole, "at {at}");
    }
}

#[test]
fn an_unknown_event_or_delta_is_ignored() {
    let whole = read(&hello()).unwrap();
    for (at, unknown) in [
        (0, r#"{"type":"message_hologram","delta":{"text":"no"}}"#.to_owned()),
        (1, r#"{"type":"mood","message":{"id":"msg_9"}}"#.to_owned()),
        (2, delta(0, r#"{"type":"smell_delta","text":"no"}"#)),
        (3, delta(7, r#"{"type":"text_delta","text":"of no block"}"#)),
    ] {
        let mut events = hello();
        events.insert(at, unknown);
        assert_eq!(read(&events).unwrap(), whole, "at {at}");
    }
}

#[test]
fn an_unknown_block_is_kept_verbatim() {
    let hologram = r#"{"type":"hologram","z":[1,{"y":"\"{"}],"a":null}"#;
    let events = [begin(0, hologram), delta(0, r#"{"type":"tilt_delta","tilt":3}"#), end(0)];
    let turn = message(&events, "end_turn");
    assert_eq!(own(&turn), [hologram]);
    assert!(sent(then_more(&turn)).contains(hologram));
}

#[test]
fn the_type_field_replaces_a_missing_event_name() {
    let body: String = hello().iter().flat_map(|data| ["data: ", data, "\n\n"]).collect();
    assert_eq!(read_body(body).unwrap(), read(&hello()).unwrap());
}

#[test]
fn the_event_name_replaces_a_missing_type_field() {
    let body = body(&hello()).replace(r#""type":"message_stop""#, "");
    let body = body.replace(r#""type":"content_block_delta","#, "");
    assert_eq!(read_body(body).unwrap(), read(&hello()).unwrap());
}

#[test]
fn blocks_are_distinguished_by_index_with_gaps_and_interleaving() {
    let call = r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#;
    let turn = message(
        &[
            begin(7, TEXT),
            begin(2, call),
            text(7, "a"),
            input(2, "{\"x\""),
            text(7, "b"),
            input(2, ":1}"),
            end(2),
            text(7, "c"),
            end(7),
        ],
        "tool_use",
    );
    assert_eq!(turn.text(), "abc");
    assert_eq!(turn.tool_calls().next().unwrap().arguments, r#"{"x":1}"#);
}

#[test]
fn a_text_block_may_begin_with_text() {
    let turn = one_block(r#"{"type":"text","text":"So "}"#, &[text(0, "it is.")], "end_turn");
    assert_eq!(turn.text(), "So it is.");
}

#[test]
fn a_null_message_and_untyped_frames_are_ignored() {
    let mut events = hello();
    events.insert(1, r#"{"type":"message_start","message":null}"#.into());
    events.insert(2, r#"{"amazon-bedrock-invocationMetrics":{"inputTokenCount":3}}"#.into());
    events.insert(3, r#"{"delta":null,"index":0}"#.into());
    assert_eq!(read(&events).unwrap(), read(&hello()).unwrap());
}

#[test]
fn a_repeated_message_start_counts_once() {
    let mut events = hello();
    events.insert(3, START.into());
    assert_eq!(read(&events).unwrap(), read(&hello()).unwrap());
}

#[test]
fn a_second_message_inside_the_first_is_an_error() {
    let mut events = hello();
    events.insert(3, START.replace("msg_1", "msg_2"));
    let error = read(&events).unwrap_err();
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
    let again = START.replace("msg_1", "msg_3");
    let turn = read(&[
        called("msg_1", "f"),
        STOP.into(),
        called("msg_2", "g"),
        STOP.into(),
        again,
        begin(0, TEXT),
        text(0, "Wait."),
        end(0),
        stop("max_tokens"),
        STOP.into(),
    ])
    .unwrap();
    let names: Vec<_> = turn.tool_calls().map(|call| call.name.as_str()).collect();
    assert_eq!((names, turn.text().as_str()), (vec!["f", "g"], "Wait."));
    // The last word is that of the last message, and all of them were paid for.
    assert_eq!(turn.raw_stop_reason(), Some("max_tokens"));
    assert!(turn.calls().veto().is_some());
    assert_eq!((turn.usage().input_tokens, turn.usage().output_tokens), (16, 5));
    assert_eq!(turn.response_id(), Some("msg_1"));
}

#[test]
fn blocks_of_several_messages_are_not_mixed_up() {
    let mut events = hello();
    events.extend(hello().iter().map(|event| event.replace("msg_1", "msg_2")));
    let turn = read(&events).unwrap();
    let texts: Vec<_> = turn.items().iter().filter_map(|item| item.as_text()).collect();
    assert_eq!(texts, ["Hello", "Hello"]);
}

#[test]
fn a_message_after_the_end_needs_its_own_end() {
    let mut events = hello();
    events.push(START.replace("msg_1", "msg_2"));
    events.push(begin(0, TEXT));
    let error = read(&events).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn other_events_after_the_end_change_nothing() {
    let mut events = hello();
    events.extend([START.into(), text(0, "no"), stop("max_tokens"), STOP.into()]);
    assert_eq!(read(&events).unwrap(), read(&hello()).unwrap());
}

#[test]
fn a_stop_reason_completes_the_turn_without_message_stop() {
    let events = hello();
    assert_eq!(read(&events[..events.len() - 1]).unwrap(), read(&events).unwrap());
}

#[test]
fn without_stop_reason_and_message_stop_the_turn_is_incomplete() {
    let events = hello();
    let error = read(&events[..events.len() - 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
    assert_eq!(PartialTurn::from_error(&error).unwrap().text(), "Hello");
}

#[test]
fn an_error_anywhere_in_the_stream_is_the_turns_error() {
    #[track_caller]
    fn check(kind: &str, expected: ErrorKind) {
        let event = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"why"}}}}"#);
        for at in 0..hello().len() - 1 {
            let mut events = hello();
            events.insert(at, event.clone());
            let error = read(&events).unwrap_err();
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
    let second = body(&[START.replace("msg_1", "msg_2")]);
    let chunks = [body(&hello()), second].map(|chunk| Ok(Bytes::from(chunk)));
    let body = stream::iter(chunks).chain(stream::pending());
    let mut turn =
        seal(&History::from_id("h"), Decoding::new(body, anthropic::Decoder::new(MODEL)));
    let mut counted = 0;
    while let Some(event) = turn.next().now_or_never() {
        if let TurnEvent::UsageUpdate { usage } = event.unwrap().unwrap() {
            counted = usage.input_tokens;
        }
    }
    assert_eq!(counted, 20);
}
