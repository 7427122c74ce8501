//! The laws of every wire: any split of the bytes decodes to the same turn, and a truncated body
//! never to a complete one.

use bytes::Bytes;
use turnstream::ErrorKind;
use turnstream::turn::TurnEvent;

use super::{DONE_LINE, decode_events, json_lines_body, text_line, thinking_line, tool_calls_line};

fn sample_body() -> Bytes {
    let call = r#"{"id":"c1","function":{"index":0,"name":"f","arguments":{"a":"ü"}}},{"function":{"index":1,"name":"g","arguments":"{}"}}"#;
    json_lines_body(&[
        &thinking_line("Hm é."),
        &text_line("Yes\\n"),
        &text_line("ja"),
        &tool_calls_line(call),
        DONE_LINE,
    ])
    .into()
}

#[test]
fn any_split_of_the_bytes_yields_the_same_events() {
    let bytes = sample_body();
    let expected = decode_events([bytes.clone()]);
    assert!(matches!(expected.last(), Some(Ok(TurnEvent::TurnComplete { .. }))), "{expected:?}");
    for at in 0..bytes.len() {
        let pieces = [bytes.slice(..at), bytes.slice(at..)];
        assert_eq!(decode_events(pieces), expected, "cut at {at}");
    }
    assert_eq!(decode_events((0..bytes.len()).map(|at| bytes.slice(at..=at))), expected);
    let in_crlf = String::from_utf8(bytes.to_vec()).unwrap().replace('\n', "\r\n");
    assert_eq!(decode_events([in_crlf.into()]), expected);
}

#[test]
fn a_body_truncated_at_any_byte_is_an_incomplete_turn() {
    let bytes = sample_body();
    // The line feed after the last line may be missing.
    for at in 0..bytes.len() - 1 {
        let events = decode_events([bytes.slice(..at)]);
        let error = events.last().unwrap().as_ref().expect_err("no whole turn");
        assert_eq!(error.kind(), ErrorKind::IncompleteTurn, "cut at {at}");
    }
    assert!(decode_events([bytes.slice(..bytes.len() - 1)]).last().unwrap().is_ok());
}
