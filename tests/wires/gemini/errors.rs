//! How a turn fails.

use turnstream::ErrorKind;
use turnstream::turn::PartialTurn;

use super::{decode_body, decode_turn, finish_chunk, parts_chunk};

#[test]
fn a_stream_without_a_finish_reason_is_incomplete() {
    let error = decode_turn(&[&parts_chunk(r#"{"text":"a"}"#)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
    assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "a");
    let unspecified = finish_chunk("FINISH_REASON_UNSPECIFIED");
    assert_eq!(decode_turn(&[&unspecified]).unwrap_err().kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn a_stream_that_is_entirely_empty_is_incomplete() {
    for body in ["", "\r\n\r\n", ": ping\n\n", "data:\n\n"] {
        assert_eq!(decode_body(body).unwrap_err().kind(), ErrorKind::IncompleteTurn, "{body:?}");
    }
}

#[test]
fn complete_calls_without_a_finish_reason_never_run() {
    let call = parts_chunk(r#"{"functionCall":{"name":"f","args":{}}}"#);
    assert_eq!(decode_turn(&[&call]).unwrap_err().kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn an_error_in_the_stream_is_recognized_in_every_form() {
    let error =
        r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#;
    let text = parts_chunk(r#"{"text":"a"}"#);
    for chunks in [vec![error], vec![&text, error], vec![&format!("[{error}]")]] {
        let error = decode_turn(&chunks).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        assert!(error.message().ends_with("The model is overloaded."), "{error}");
    }
    let named = decode_body(format!("event: error\ndata: {error}\n\n")).unwrap_err();
    assert_eq!(named.kind(), ErrorKind::Overloaded);
    let exhausted = r#"{"error":{"code":429,"message":"used up","status":"RESOURCE_EXHAUSTED"}}"#;
    assert_eq!(decode_turn(&[exhausted]).unwrap_err().kind(), ErrorKind::RateLimited);
}

#[test]
fn a_failed_generation_is_an_error_with_its_reason() {
    for raw in [
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
    ] {
        let error = decode_turn(&[&finish_chunk(raw)]).unwrap_err();
        assert!(error.message().ends_with(raw), "{error}");
        let told = format!(
            r#"{{"candidates":[{{"finishReason":"{raw}","finishMessage":"print(\nf()) is no call"}}]}}"#
        );
        let error = decode_turn(&[&parts_chunk(r#"{"text":"a"}"#), &told]).unwrap_err();
        assert!(error.message().ends_with("print( f()) is no call"), "{error}");
    }
    let kind = |raw| decode_turn(&[&finish_chunk(raw)]).unwrap_err().kind();
    assert_eq!(kind("MISSING_THOUGHT_SIGNATURE"), ErrorKind::InvalidRequest);
}

#[test]
fn an_error_contains_at_most_500_characters_of_a_finish_message() {
    let message = "z".repeat(9_000);
    let end = format!(
        r#"{{"candidates":[{{"finishReason":"MALFORMED_RESPONSE","finishMessage":"{message}"}}]}}"#
    );
    let error = decode_turn(&[&end]).unwrap_err();
    assert_eq!(error.message().matches('z').count(), 500);
}

#[test]
fn invalid_json_is_a_protocol_error() {
    for odd in ["{", "x", "[{]", "<html>"] {
        assert_eq!(decode_turn(&[odd]).unwrap_err().kind(), ErrorKind::Protocol, "{odd}");
    }
}
