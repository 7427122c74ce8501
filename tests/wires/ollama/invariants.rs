//! The laws of every wire: any cut of the bytes is the same turn, and half a body is never a whole one.

use bytes::Bytes;
use turnstream::ErrorKind;
use turnstream::turn::TurnEvent;

use super::{END, body, calls, events_of, text, thought};

fn stream() -> Bytes {
    let call = r#"{"id":"c1","function":{"index":0,"name":"f","arguments":{"a":"ü"}}},{"function":{"index":1,"name":"g","arguments":"{}"}}"#;
    body(&[&thought("Hm é."), &text("Yes\\n"), &text("ja"), &calls(call), END]).into()
}

#[test]
fn any_split_of_the_bytes_yields_the_same_events() {
    let bytes = stream();
    let expected = events_of([bytes.clone()]);
    assert!(matches!(expected.last(), Some(Ok(TurnEvent::TurnComplete { .. }))), "{expected:?}");
    for at in 0..bytes.len() {
        let pieces = [bytes.slice(..at), bytes.slice(at..)];
        assert_eq!(events_of(pieces), expected, "cut at {at}");
    }
    assert_eq!(events_of((0..bytes.len()).map(|at| bytes.slice(at..=at))), expected);
    let in_crlf = String::from_utf8(bytes.to_vec()).unwrap().replace('\n', "\r\n");
    assert_eq!(events_of([in_crlf.into()]), expected);
}

#[test]
fn a_body_truncated_at_any_byte_is_an_incomplete_turn() {
    let bytes = stream();
    // The line feed after the last line may be missing.
    for at in 0..bytes.len() - 1 {
        let events = events_of([bytes.slice(..at)]);
        let error = events.last().unwrap().as_ref().expect_err("no whole turn");
        assert_eq!(error.kind(), ErrorKind::IncompleteTurn, "cut at {at}");
    }
    assert!(events_of([bytes.slice(..bytes.len() - 1)]).last().unwrap().is_ok());
}
