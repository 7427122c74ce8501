//! The model's own parts are sent back to it unchanged, and to no other model.

use serde_json::{Value, json};
use turnstream::item::ResultKind;
use turnstream::{History, Item};

use super::{MODEL, decode_parts, encode_for_model, request_with_items, tool_result};

/// The model's content in a request to `model` that follows a turn of `MODEL`.
fn encode_follow_up(model: &str, written: &[&str]) -> Value {
    let turn = decode_parts(written).unwrap();
    let mut items = vec![Item::user("go")];
    items.extend(turn.to_history_items());
    let calls: Vec<_> = turn.tool_calls().map(|call| call.call_id.clone()).collect();
    items.extend(calls.iter().map(|id| tool_result(id, ResultKind::Ok, "1")));
    encode_for_model(model, &request_with_items(items))["contents"].take()
}

/// Checks that parts are sent back byte for byte to their model, and what another model receives.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
fn check_round_trip(written: &[&str], to_another: Value) {
    let parts: Vec<Value> =
        written.iter().map(|part| serde_json::from_str(part).unwrap()).collect();
    assert_eq!(encode_follow_up(MODEL, written)[1]["parts"], Value::from(parts));
    assert_eq!(encode_follow_up("gemini-2.5-pro", written)[1]["parts"], to_another);
}

const SIGNATURE: &str = "CiMBjz1rX+/25==";

#[test]
fn signatures_are_sent_back_on_their_part() {
    check_round_trip(
        &[
            &format!(r#"{{"text":"Hm.","thought":true,"thoughtSignature":"{SIGNATURE}1"}}"#),
            &format!(r#"{{"text":"a","thoughtSignature":"{SIGNATURE}2"}}"#),
            r#"{"text":"b"}"#,
            &format!(r#"{{"text":"","thoughtSignature":"{SIGNATURE}3"}}"#),
            r#"{"text":"c"}"#,
        ],
        json!([{ "text": "a" }, { "text": "b" }, { "text": "c" }]),
    );
}

#[test]
fn only_the_first_of_parallel_calls_is_sent_back_signed() {
    check_round_trip(
        &[
            &format!(
                r#"{{"functionCall":{{"name":"f","args":{{"a":1}}}},"thoughtSignature":"{SIGNATURE}"}}"#
            ),
            r#"{"functionCall":{"name":"g","args":{}}}"#,
        ],
        json!([
            { "functionCall": { "name": "f", "args": { "a": 1 } } },
            { "functionCall": { "name": "g", "args": {} } },
        ]),
    );
}

#[test]
fn a_vendor_id_is_sent_back_on_the_call_and_its_result() {
    let written = &[r#"{"functionCall":{"id":"c1","name":"f","args":{}},"thoughtSignature":"x"}"#];
    check_round_trip(written, json!([{ "functionCall": { "name": "f", "args": {} } }]));
    let response = |contents: Value| contents[2]["parts"][0]["functionResponse"]["id"].clone();
    assert_eq!(response(encode_follow_up(MODEL, written)), "c1");
    assert_eq!(response(encode_follow_up("gemini-2.5-pro", written)), Value::Null);
    let without = &[r#"{"functionCall":{"name":"f","args":{}},"thoughtSignature":"x"}"#];
    assert_eq!(response(encode_follow_up(MODEL, without)), Value::Null);
}

#[test]
fn calls_with_a_shared_id_are_sent_back_with_distinct_ids() {
    let contents = encode_follow_up(
        MODEL,
        &[
            r#"{"functionCall":{"id":"c","name":"f","args":{"a":1}},"thoughtSignature":"x"}"#,
            r#"{"functionCall":{"id":"c","name":"f","args":{"a":2}}}"#,
        ],
    );
    let ids = |content: usize, field: &str| -> Vec<Value> {
        let parts = contents[content]["parts"].as_array().unwrap();
        parts.iter().map(|part| part[field]["id"].clone()).collect()
    };
    assert_eq!(ids(1, "functionCall"), ["c", "c_dup1"]);
    assert_eq!(ids(2, "functionResponse"), ["c", "c_dup1"]);
}

#[test]
fn provider_parts_are_sent_back_verbatim() {
    check_round_trip(
        &[
            r#"{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"x"}"#,
            r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1\n"}}"#,
            r#"{"toolCall":{"toolType":"T","args":{"q":1},"id":"s"},"thoughtSignature":"y"}"#,
            r#"{"toolResponse":{"toolType":"T","response":{"r":[1]},"id":"s"}}"#,
            r#"{"inlineData":{"mimeType":"image/png","data":"AAAA"}}"#,
            r#"{"text":"a"}"#,
        ],
        json!([{ "text": "a" }]),
    );
}

#[test]
fn unsigned_reasoning_is_not_sent() {
    let said = encode_follow_up(MODEL, &[r#"{"text":"Hm.","thought":true}"#, r#"{"text":"a"}"#]);
    assert_eq!(said[1]["parts"], json!([{ "text": "a" }]));
}

#[test]
fn signatures_survive_a_store() {
    let written = format!(r#"{{"text":"","thoughtSignature":"{SIGNATURE}"}}"#);
    let turn = decode_parts(&[r#"{"text":"a"}"#, &written]).unwrap();
    let mut items = vec![Item::user("go")];
    items.extend(turn.to_history_items());
    let stored = serde_json::to_string(&History::from_items("h", items)).unwrap();
    let restored: History = serde_json::from_str(&stored).unwrap();
    let body = encode_for_model(MODEL, &turnstream::Request::new(restored));
    assert_eq!(body["contents"][1]["parts"][1]["thoughtSignature"], SIGNATURE);
}

#[test]
fn parallel_calls_of_several_chunks_are_one_signed_content_after_a_store() {
    let call = |n: u32, signature: &str| {
        format!(r#"{{"functionCall":{{"name":"f","args":{{"a":{n}}}}}{signature}}}"#)
    };
    let signed = format!(r#","thoughtSignature":"{SIGNATURE}""#);
    let turn = decode_parts(&[&call(1, &signed), &call(2, ""), &call(3, "")]).unwrap();
    let mut items = vec![Item::user("go")];
    items.extend(turn.to_history_items());
    let ids = turn.tool_calls().map(|call| call.call_id.clone()).collect::<Vec<_>>();
    items.extend(ids.iter().map(|id| tool_result(id, ResultKind::Ok, "1")));
    // Each item is stored separately, as a session does.
    let stored: Vec<String> =
        items.iter().map(|item| serde_json::to_string(item).unwrap()).collect();
    let restored = stored.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let contents = encode_for_model(MODEL, &request_with_items(restored))["contents"].take();
    let parts = contents[1]["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 3, "{contents}");
    let signatures: Vec<_> = parts.iter().map(|part| part["thoughtSignature"].clone()).collect();
    assert_eq!(signatures, [json!(SIGNATURE), Value::Null, Value::Null]);
    assert_eq!(contents.as_array().unwrap().len(), 3);
}
