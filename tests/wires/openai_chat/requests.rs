//! A request in the documented form, with files and with failed results.

use serde_json::{Value, json};
use turnstream::item::{Content, ItemKind, Media, MediaSource, Part, ResultKind, ToolResult};
use turnstream::provider::openai_chat::{Dialect, encode};
use turnstream::request::ToolSpec;
use turnstream::{Error, ErrorKind, History, Item, Request};

fn encode_json(items: Vec<Item>) -> Result<Value, Error> {
    let mut request = Request::new(History::from_items("h", items)).with_system("be brief");
    request.system.volatile = "today".into();
    request.options.max_output_tokens = Some(9);
    request.tools = vec![ToolSpec::new("f", "F", json!({ "type": "object" }))].into();
    encode(&request, "m", &Dialect::OPENAI).map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

fn tool_result(id: &str, content: impl Into<Content>) -> Item {
    Item::tool_result(ToolResult {
        call_id: id.into(),
        name: "f".into(),
        content: content.into(),
        kind: ResultKind::Ok,
        report: None,
    })
}

#[test]
fn a_request_has_the_documented_shape() {
    let body = encode_json(vec![
        Item::user("one"),
        Item::user("two"),
        Item::reasoning("not sent"),
        Item::text("I'll look."),
        Item::tool_call("a", "f", ""),
        Item::tool_call("b", "f", "{\"x\": 1"),
        tool_result("a", "fine"),
        tool_result("b", vec!["see".into(), Part::image("image/png", b"\0\0\0")]),
        Item::text("done"),
    ])
    .unwrap();
    assert_eq!(
        body,
        json!({
            "model": "m",
            "stream": true,
            "stream_options": { "include_usage": true },
            "max_completion_tokens": 9,
            "tools": [{ "type": "function", "function":
                { "name": "f", "description": "F", "parameters": { "type": "object", "properties": {} } } }],
            "messages": [
                { "role": "system", "content": "be brief" },
                { "role": "user", "content": "one" },
                { "role": "user", "content": "two" },
                { "role": "assistant", "content": "I'll look.", "tool_calls": [
                    { "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } },
                    { "id": "b", "type": "function", "function":
                        { "name": "f", "arguments": "{\"INVALID_JSON\":\"{\\\"x\\\": 1\"}" } },
                ] },
                { "role": "tool", "tool_call_id": "a", "content": "fine" },
                { "role": "tool", "tool_call_id": "b", "content": "see" },
                { "role": "user", "content": [
                    { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } },
                ] },
                { "role": "assistant", "content": "done" },
                { "role": "system", "content": "today" },
            ],
        })
    );
}

#[test]
fn a_file_is_sent_with_its_name() {
    let pdf = || Part::file("application/pdf", b"\0\0\0");
    let parts = vec![pdf().with_name("report.pdf"), pdf()];
    let body = encode_json(vec![Item::user(parts)]).unwrap();
    let names: Vec<&Value> = body["messages"][1]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["file"]["filename"])
        .collect();
    assert_eq!(names, ["report.pdf", "file"]);
}

#[test]
fn a_file_url_is_an_unsupported_error() {
    let source = MediaSource::Url("https://a.example/b.pdf".into());
    let file = Part::File(Media::new("application/pdf", source));
    let error = encode_json(vec![Item::user(vec![file])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn an_empty_error_result_is_sent_with_a_message() {
    let mut failed = tool_result("a", "");
    if let ItemKind::ToolResult(result) = &mut failed.kind {
        result.kind = ResultKind::Error;
    }
    let history =
        History::from_items("h", [Item::user("hi"), Item::tool_call("a", "f", "{}"), failed]);
    let body = encode(&Request::new(history), "m", &Dialect::OPENAI).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["messages"][2]["content"], "It failed without a message.");
}
