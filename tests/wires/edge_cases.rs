//! Edge cases of the Messages and Chat Completions wires: unusual responses, invalid encodings of a
//! history, and, over HTTP, secrets in errors and time limits.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::Value;
use turnstream::item::{ItemFlag, ProviderData, RawJson, ResultKind, StopReason, ToolResult};
use turnstream::provider::{Decoding, anthropic, openai_chat};
use turnstream::stream::{TurnStreamExt, seal};
use turnstream::turn::{Turn, TurnEvent};
use turnstream::{Error, ErrorKind, Event, History, Item, Request, Usage};

use turnstream_test_support::items::as_turn_end;
use turnstream_test_support::wires::{decode_sse_turn, sse_body};

const FINISH_STOP_CHUNK: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const FINISH_TOOL_CALLS_CHUNK: &str =
    r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
const MESSAGE_START: &str =
    r#"{"type":"message_start","message":{"id":"m1","model":"m","usage":{"input_tokens":1}}}"#;
const BLOCK_STOP: &str = r#"{"type":"content_block_stop","index":0}"#;
const MESSAGE_DELTA_END_TURN: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
const MESSAGE_DELTA_TOOL_USE: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
const MESSAGE_STOP: &str = r#"{"type":"message_stop"}"#;

/// Decodes a Chat Completions stream.
fn decode_chat(data: &[&str]) -> Result<Turn, Error> {
    decode_sse_turn(sse_body(data), openai_chat::Decoder::new("m", &openai_chat::Dialect::OPENAI))
}

/// Decodes a Messages stream.
fn decode_messages(data: &[&str]) -> Result<Turn, Error> {
    decode_sse_turn(sse_body(data), anthropic::Decoder::new("m"))
}

/// Decodes a Messages stream with one block, given its start and deltas.
fn decode_one_block(start: &str, deltas: &[&str], reason: &str) -> Result<Turn, Error> {
    let start = format!(r#"{{"type":"content_block_start","index":0,"content_block":{start}}}"#);
    decode_messages(
        &[&[MESSAGE_START, &start], deltas, &[BLOCK_STOP, reason, MESSAGE_STOP]].concat(),
    )
}

/// A chunk with a piece of a call.
fn call_chunk(call: &str) -> String {
    format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,{call}}}]}}}}]}}"#)
}

fn as_strs(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

fn nested_arrays(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

fn text_or_error(turn: Result<Turn, Error>) -> Result<String, String> {
    turn.map(|turn| turn.text()).map_err(|error| error.to_string())
}

/// The arguments of the calls that may run.
fn runnable_arguments(turn: Result<Turn, Error>) -> Vec<String> {
    let Ok(turn) = turn else { return Vec::new() };
    let calls = turn.calls();
    match calls.veto() {
        Some(_) => Vec::new(),
        None => calls.iter().map(|call| call.arguments.clone()).collect(),
    }
}

fn request_with_items(items: Vec<Item>) -> Request {
    Request::new(History::from_items("h", items))
}

fn encode_for_messages(items: Vec<Item>) -> Value {
    serde_json::from_slice(&anthropic::encode(&request_with_items(items), "m").unwrap()).unwrap()
}

fn encode_for_chat(items: Vec<Item>) -> Value {
    let dialect = openai_chat::Dialect::OPENAI;
    serde_json::from_slice(&openai_chat::encode(&request_with_items(items), "m", &dialect).unwrap())
        .unwrap()
}

/// An item that ends its turn.
fn as_last_of_turn(item: Item) -> Item {
    as_turn_end(StopReason::Pause, item, Usage::default())
}

/// A call of `f` and its result.
fn call_and_result(
    id: &str,
    name: &str,
    arguments: &str,
    text: &str,
    kind: ResultKind,
) -> Vec<Item> {
    let (call_id, content) = (id.into(), text.into());
    vec![
        Item::user("x"),
        as_last_of_turn(Item::tool_call(id, name, arguments)),
        Item::tool_result(ToolResult { call_id, name: name.into(), content, kind, report: None }),
    ]
}

#[track_caller]
fn check_tool_name(name: &Value) {
    let name = name.as_str().unwrap();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    assert!(name.len() <= 64 && name.chars().all(plain), "{name}");
}

#[test]
fn a_chat_chunk_with_unexpected_fields_loses_no_text() {
    #[track_caller]
    fn check(chunk: &str, text: &str) {
        assert_eq!(
            text_or_error(decode_chat(&[chunk, FINISH_STOP_CHUNK, "[DONE]"])),
            Ok(text.to_owned()),
            "{chunk:.200}"
        );
    }
    // Repeated keys.
    check(r#"{"choices":[{"delta":{"content":"a","content":"a"}}]}"#, "a");
    check(r#"{"id":"x","id":"x","choices":[{"delta":{"content":"a"}}]}"#, "a");
    // Half of a surrogate pair: in the text, in an ignored field, in a key.
    check(r#"{"choices":[{"delta":{"content":"a\ud83d"}}]}"#, "a\u{fffd}");
    check(r#"{"x":"\ud83d","choices":[{"delta":{"content":"a"}}]}"#, "a");
    check(r#"{"\ud83d":"q","choices":[{"delta":{"content":"a"}}]}"#, "a");
    // Numbers beyond any type.
    for number in ["1e999", "-1e999", "99999999999999999999999"] {
        let usage = format!(r#""usage":{{"prompt_tokens":{number}}}"#);
        check(&format!(r#"{{"choices":[{{"delta":{{"content":"a"}}}}],{usage}}}"#), "a");
        let fields = format!(r#""content":"a","role":{number},"refusal":{number}"#);
        check(&format!(r#"{{"choices":[{{"index":0,"delta":{{{fields}}}}}]}}"#), "a");
    }
    // Deep nesting, in decoded fields and in ignored ones.
    let deep = nested_arrays(5000);
    check(&format!(r#"{{"x":{deep},"choices":[{{"delta":{{"content":"a"}}}}]}}"#), "a");
    let delta = format!(r#""content":"a","refusal":{deep},"tool_calls":{deep}"#);
    let chunk = format!(r#"{{"id":{deep},"usage":{deep},"choices":[{{"delta":{{{delta}}}}}]}}"#);
    check(&chunk, "a");
    let two = format!(r#"{{"delta":{{"content":{deep}}}}},{{"delta":{{"content":"a"}}}}"#);
    check(&format!(r#"{{"choices":[{two}]}}"#), "");
    // Other values in place of an object.
    check(r#"{"choices":[null,5,{"delta":{"content":"a"}}]}"#, "a");
    check(r#"{"choices":[{"delta":{"content":["x",{"type":"text","text":"a"}]}}]}"#, "a");
    check(r#"{"error":"","choices":[{"delta":{"content":"a"}}]}"#, "a");
    for error in ["null", "false", "\"\""] {
        check(&format!(r#"{{"choices":[{{"error":{error},"delta":{{"content":"a"}}}}]}}"#), "a");
    }
}

#[test]
fn chat_frames_that_are_not_chunks_are_ignored() {
    const TEXT_CHUNK: &str = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    for odd in ["", "null", r#"{"choices":"x"}"#, r#"{"choices":5}"#, r#"{"choices":true}"#] {
        assert_eq!(
            text_or_error(decode_chat(&[odd, TEXT_CHUNK, FINISH_STOP_CHUNK, "[DONE]"])),
            Ok("a".to_owned()),
            "{odd}"
        );
    }
}

#[test]
fn an_anthropic_block_with_unexpected_fields_loses_no_text() {
    #[track_caller]
    fn check(start: &str, delta: &str, text: &str) {
        let turn = decode_one_block(start, &[delta], MESSAGE_DELTA_END_TURN);
        assert_eq!(text_or_error(turn), Ok(text.to_owned()), "{start} {delta}");
    }
    let start = r#"{"type":"text","text":""}"#;
    let delta = |fields: &str, text: &str| {
        let delta = format!(r#""delta":{{"type":"text_delta","text":"{text}"}}"#);
        format!(r#"{{"type":"content_block_delta",{fields}"index":0,{delta}}}"#)
    };
    check(start, &delta(r#""type":"content_block_delta","#, "a"), "a");
    check(start, &delta("", r"a\ud83d"), "a\u{fffd}");
    check(start, &delta(r#""usage":{"input_tokens":1e400},"#, "a"), "a");
    check(r#"{"type":"text","text":"","citations":"none"}"#, &delta("", "a"), "a");
    check(r#"{"type":"text","text":"","text":""}"#, &delta("", "a"), "a");
}

#[test]
fn a_message_stream_is_read_through_idle_frames_and_ends_without_its_last_event() {
    let idle = "event: ping\ndata:\n\nevent: keepalive\ndata: still here\n\n".to_owned();
    let body = idle + &sse_body(&[MESSAGE_START, MESSAGE_DELTA_END_TURN, MESSAGE_STOP]);
    assert_eq!(
        text_or_error(decode_sse_turn(body, anthropic::Decoder::new("m"))),
        Ok(String::new())
    );
    assert_eq!(
        text_or_error(decode_messages(&[MESSAGE_START, MESSAGE_DELTA_END_TURN, "[DONE]"])),
        Ok(String::new())
    );
}

#[test]
fn an_error_in_a_message_stream_is_understood_in_any_shape() {
    let untyped = r#"{"error":{"type":"overloaded_error","message":"busy"}}"#;
    assert_eq!(
        decode_messages(&[MESSAGE_START, untyped]).unwrap_err().kind(),
        ErrorKind::Overloaded
    );
    let flat =
        decode_messages(&[MESSAGE_START, r#"{"type":"error","message":"busy now"}"#]).unwrap_err();
    assert!(flat.message().contains("busy now"), "{flat}");
}

/// The complete arguments of the call below.
const WHOLE_ARGUMENTS: &str = r#"{"path":"/x"}"#;

#[test]
fn an_anthropic_call_runs_with_its_own_arguments_or_not_at_all() {
    const TOOL_USE_BLOCK: &str = r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#;
    #[track_caller]
    fn check(deltas: &[&str]) {
        let runs =
            runnable_arguments(decode_one_block(TOOL_USE_BLOCK, deltas, MESSAGE_DELTA_TOOL_USE));
        assert!(
            runs.iter().all(|arguments| arguments == WHOLE_ARGUMENTS),
            "{runs:?} of {deltas:?}"
        );
    }
    let delta = |index: u32, kind: &str, json: &str| {
        let delta = format!(r#"{{{kind}"partial_json":{json}}}"#);
        format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
    };
    let (kind, json) = (r#""type":"input_json_delta","#, r#""{\"path\":\"/x\"}""#);
    assert_eq!(
        runnable_arguments(decode_one_block(
            TOOL_USE_BLOCK,
            &[&delta(0, kind, json)],
            MESSAGE_DELTA_TOOL_USE
        )),
        [WHOLE_ARGUMENTS]
    );
    // As an object, without the kind of the delta, for another block, after the end of its own
    // block.
    check(&[&delta(0, kind, WHOLE_ARGUMENTS)]);
    check(&[&delta(0, "", json)]);
    check(&[&delta(3, kind, json)]);
    check(&[BLOCK_STOP, &delta(0, kind, json)]);
}

#[test]
fn a_chat_call_runs_with_its_own_arguments_or_not_at_all() {
    fn run(calls: &[&str], after: &[&str]) -> Vec<String> {
        let chunks = |calls: &[&str]| calls.iter().map(|call| call_chunk(call)).collect::<Vec<_>>();
        let (calls, after) = (chunks(calls), chunks(after));
        runnable_arguments(decode_chat(
            &[&as_strs(&calls)[..], &[FINISH_TOOL_CALLS_CHUNK], &as_strs(&after), &["[DONE]"]]
                .concat(),
        ))
    }
    #[track_caller]
    fn check(calls: &[&str], after: &[&str]) {
        let runs = run(calls, after);
        assert!(runs.iter().all(|arguments| arguments == WHOLE_ARGUMENTS), "{runs:?} of {calls:?}");
    }
    let whole = r#""function":{"arguments":"{\"path\":\"/x\"}"}"#;
    let named = r#""id":"a","function":{"name":"f"}"#;
    assert_eq!(run(&[named, whole], &[]), [WHOLE_ARGUMENTS]);
    // The name comes last.
    assert_eq!(run(&[whole, named], &[]), [WHOLE_ARGUMENTS]);
    // In an array, with a number in the middle, not in an object, after the end.
    check(&[r#""id":"a","function":{"name":"f","arguments":[{"path":"/x"}]}"#], &[]);
    let begun = r#""id":"a","function":{"name":"f","arguments":"{\"n\": 1"}"#;
    let end = r#""function":{"arguments":"}"}"#;
    check(&[begun, r#""function":{"arguments":5}"#, end], &[]);
    check(&[named, r#""function":"{\"path\":\"/x\"}""#], &[]);
    check(&[r#""id":"a","function":{"name":"f","arguments":""}"#], &[whole]);
}

#[test]
fn a_lone_surrogate_in_arguments_never_changes_the_call() {
    fn run(pieces: &[&str]) -> Vec<String> {
        let pieces = [&[r#"{\"cmd\":\"rm "#, "-i draft-"], pieces, &[r#" *\"}"#]].concat();
        let (mut chunks, mut deltas) = (Vec::new(), Vec::new());
        for json in pieces {
            let call = format!(r#""id":"c","function":{{"name":"sh","arguments":"{json}"}}"#);
            chunks.push(call_chunk(&call));
            let delta = format!(r#"{{"type":"input_json_delta","partial_json":"{json}"}}"#);
            deltas.push(format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#));
        }
        let start = r#"{"type":"tool_use","id":"c","name":"sh","input":{}}"#;
        let mut all = runnable_arguments(decode_chat(
            &[&as_strs(&chunks)[..], &[FINISH_TOOL_CALLS_CHUNK, "[DONE]"]].concat(),
        ));
        all.extend(runnable_arguments(decode_one_block(
            start,
            &as_strs(&deltas),
            MESSAGE_DELTA_TOOL_USE,
        )));
        all
    }
    #[track_caller]
    fn check(pieces: &[&str]) {
        for arguments in run(pieces) {
            let value: Value = serde_json::from_str(&arguments).unwrap();
            let command = value["cmd"].as_str().unwrap();
            assert!(command.starts_with("rm -i draft-") && command.ends_with(" *"), "{command}");
        }
    }
    assert_eq!(run(&[r"\ud83d\ude00"]), [r#"{"cmd":"rm -i draft-😀 *"}"#; 2]);
    check(&[r"\ud83d", r"\ude00"]);
    check(&[r"\ud83d", "", r"\ude00"]);
    check(&[r"\ud83d"]);
    check(&[r"\ude00"]);
    check(&[r"\ud83d", "x", r"\ude00"]);
    check(&[r"\ud83d", r"\ud83d\ude00"]);
}

#[test]
fn an_anthropic_call_without_a_name_is_an_error() {
    let turn = decode_one_block(
        r#"{"type":"tool_use","id":"t1","input":{}}"#,
        &[],
        MESSAGE_DELTA_TOOL_USE,
    );
    assert!(turn.is_err(), "{turn:?}");
}

#[test]
fn a_turn_with_deeply_nested_provider_data_round_trips_through_a_record() {
    let input = nested_arrays(120);
    let start =
        format!(r#"{{"type":"server_tool_use","id":"s","name":"web_search","input":{input}}}"#);
    let turn = Arc::new(decode_one_block(&start, &[], MESSAGE_DELTA_END_TURN).unwrap());
    let record = serde_json::to_string(&Event::Turn(TurnEvent::TurnComplete { turn })).unwrap();
    let back: Result<Event, _> = serde_json::from_str(&record);
    assert!(back.is_ok(), "{back:?}");
}

#[test]
fn an_empty_error_result_is_sent_in_an_accepted_form() {
    let sent = encode_for_messages(call_and_result("c", "f", "{}", "", ResultKind::Error));
    let result = &sent["messages"][2]["content"][0];
    assert!(result["is_error"] != true || result["content"].is_array(), "{result}");
}

#[test]
fn white_space_only_text_is_not_sent() {
    let request = request_with_items(vec![Item::user("x")]).with_system(" \n");
    let sent: Value = serde_json::from_slice(&anthropic::encode(&request, "m").unwrap()).unwrap();
    assert!(sent["system"].is_null(), "{sent}");
    let error = anthropic::encode(&request_with_items(vec![Item::user(" ")]), "m").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

#[test]
fn the_first_message_is_the_users() {
    let sent = encode_for_messages(vec![
        Item::user(" "),
        as_last_of_turn(Item::text("a")),
        Item::user("b"),
    ]);
    assert_eq!(sent["messages"][0]["role"], "user", "{sent}");
}

#[test]
fn ids_and_names_of_other_wires_are_sent_in_an_accepted_alphabet() {
    let id = "call.1:x y".to_owned() + &"z".repeat(80);
    let sent = encode_for_messages(call_and_result(&id, "f", "{}", "r", ResultKind::Ok));
    let (call, result) = (&sent["messages"][1]["content"][0], &sent["messages"][2]["content"][0]);
    check_tool_name(&call["id"]);
    assert_eq!(call["id"], result["tool_use_id"]);
    let name = "functions.get weather";
    let sent = encode_for_messages(call_and_result("c", name, "{}", "r", ResultKind::UnknownTool));
    check_tool_name(&sent["messages"][1]["content"][0]["name"]);
}

#[test]
fn a_history_with_calls_is_never_sent_without_tools() {
    let mut items = call_and_result("c", "f", "{}", "r", ResultKind::Ok);
    items.push(Item::user("y"));
    let sent = encode_for_messages(items);
    assert!(sent["tools"].is_array(), "{sent}");
}

#[test]
fn a_lone_surrogate_in_old_arguments_is_not_sent() {
    let items = call_and_result("c", "f", r#"{"p":"\ud800"}"#, "r", ResultKind::Ok);
    let body =
        String::from_utf8(anthropic::encode(&request_with_items(items), "m").unwrap()).unwrap();
    assert!(!body.contains(r"\ud800"), "{body}");
}

#[test]
fn no_message_ends_in_thinking() {
    let mut thought = Item::reasoning("hm").with_flag(ItemFlag::Interrupted);
    thought.provider_data = Some(Arc::new(ProviderData {
        provider: "anthropic".into(),
        model: "m".into(),
        value: RawJson::parse(r#"{"signature":"s"}"#).unwrap(),
    }));
    let sent = encode_for_messages(vec![Item::user("x"), thought, Item::user("y")]);
    for message in sent["messages"].as_array().unwrap() {
        if let Some(block) = message["content"].as_array().and_then(|blocks| blocks.last()) {
            assert_ne!(block["type"], "thinking", "{message}");
        }
    }
}

#[test]
fn later_items_do_not_change_how_a_text_was_sent() {
    let mut items = vec![Item::user("x"), as_last_of_turn(Item::text("one \n"))];
    let before = encode_for_messages(items.clone());
    items.push(as_last_of_turn(Item::text("two")));
    let after = encode_for_messages(items);
    assert_eq!(before["messages"][1]["content"][0], after["messages"][1]["content"][0]);

    let mut items = vec![Item::user("x"), Item::text("one").with_flag(ItemFlag::Interrupted)];
    let before = encode_for_chat(items.clone());
    items.push(as_last_of_turn(Item::text("two")));
    assert_eq!(before["messages"][1], encode_for_chat(items)["messages"][1]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_hangs_after_its_last_chunk_is_a_complete_turn() {
    let text = r#"{"choices":[{"delta":{"content":"hey"},"finish_reason":"stop"}]}"#;
    let body = Bytes::from(sse_body(&[text, "[DONE]"]));
    let body = stream::iter([Ok::<_, Error>(body)]).chain(stream::pending());
    let turn = seal(
        &History::empty("h"),
        Decoding::new(body, openai_chat::Decoder::new("m", &openai_chat::Dialect::OPENAI)),
    );
    assert_eq!(turn.into_turn().await.unwrap().text(), "hey");
}

#[cfg(feature = "http")]
mod over_http {
    use std::fmt::Write;
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};
    use turnstream::http::{HttpClient, Timeouts};
    use turnstream::provider::{OpenAiChat, Provider};
    use turnstream::stream::TurnStreamExt;
    use turnstream::{Error, ErrorKind, Item, Request};
    use turnstream_testing::http::{BodyPart, HttpResponse, LoopbackServer};

    use super::request_with_items;

    const API_KEY: &str = "sk-ab/cd+ef=12345";
    const PROMPT: &str = "PROMPTWORD";
    const HEY_FRAMES: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hey\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    const LONG_TIMEOUT: Duration = Duration::from_hours(1);
    const SHORT_TIMEOUT: Duration = Duration::from_millis(50);

    fn request() -> Request {
        request_with_items(vec![Item::user(format!("hi {PROMPT}"))])
    }

    fn http_response(status: u16, kind: &str, body: Vec<BodyPart>) -> HttpResponse {
        HttpResponse { status, headers: vec![("content-type".into(), kind.into())], body }
    }

    fn whole_response(status: u16, kind: &str, body: impl Into<bytes::Bytes>) -> HttpResponse {
        http_response(status, kind, vec![BodyPart::Bytes(body.into())])
    }

    async fn start_server(response: HttpResponse) -> LoopbackServer {
        LoopbackServer::start(move |_| response.clone()).await.unwrap()
    }

    fn provider(url: impl AsRef<str>, first_byte: Duration, idle: Duration) -> OpenAiChat {
        let provider = OpenAiChat::new("m").with_base_url(url.as_ref()).unwrap().without_retries();
        provider.with_http_client(HttpClient::without_proxy()).with_timeouts(Timeouts {
            first_byte,
            idle,
            ..Timeouts::default()
        })
    }

    /// Sends a request with a time limit.
    async fn request_text(provider: OpenAiChat) -> Result<String, Error> {
        let turn = provider.stream_turn(request()).into_turn();
        let turn = tokio::time::timeout(Duration::from_mins(1), turn).await.expect("it hangs");
        turn.map(|turn| turn.text())
    }

    async fn request_text_with_key(url: impl AsRef<str>) -> Result<String, Error> {
        request_text(provider(url, LONG_TIMEOUT, LONG_TIMEOUT).with_api_key(API_KEY)).await
    }

    /// All texts that an error can show.
    fn all_error_text(error: &Error) -> String {
        let mut all = format!("{error}|{error:?}|{error:#?}|{:?}", error.parameter());
        all += &serde_json::to_string(error).unwrap();
        let mut source = std::error::Error::source(error);
        while let Some(error) = source {
            write!(all, "|{error}|{error:?}").unwrap();
            source = error.source();
        }
        all
    }

    #[track_caller]
    fn check_hidden(shown: &str, secrets: &[&str]) {
        for secret in secrets {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }

    #[tokio::test]
    async fn a_key_that_the_server_echoes_is_never_shown_however_it_is_escaped() {
        async fn check(response: HttpResponse) {
            let server = start_server(response).await;
            let error = request_text_with_key(server.url()).await.unwrap_err();
            check_hidden(&all_error_text(&error), &[API_KEY, "sk-ab%2F", PROMPT]);
        }
        for key in [
            API_KEY.to_owned(),
            API_KEY.replace('/', "\\/"),
            API_KEY.replace('+', "\\u002b"),
            API_KEY.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D"),
        ] {
            let error = format!(r#"{{"error":{{"message":"bad key {key}","param":"{key}"}}}}"#);
            check(whole_response(401, "application/json", error.clone())).await;
            check(whole_response(200, "text/event-stream", format!("data: {error}\n\n"))).await;
        }
        let mut response = whole_response(401, "application/json", "{}");
        response.headers.push(("x-request-id".into(), format!("id-{API_KEY}")));
        check(response).await;
        // Nor by the server that received the request.
        let server = start_server(whole_response(200, "text/event-stream", HEY_FRAMES)).await;
        request_text_with_key(server.url()).await.unwrap();
        check_hidden(&format!("{server:?}"), &[API_KEY, PROMPT]);
    }

    #[tokio::test]
    async fn secrets_in_the_base_url_are_never_shown() {
        const SECRETS: &[&str] = &["hunter2pw", "QUERYSECRET"];
        let secret =
            |url: &str| url.replace("http://", "http://me:hunter2pw@") + "/v1?api-key=QUERYSECRET";
        let server = LoopbackServer::start(|request| {
            let error = format!(r#"{{"error":{{"message":"no route {}"}}}}"#, request.path);
            whole_response(400, "application/json", error)
        })
        .await
        .unwrap();
        let error = request_text(provider(secret(&server.url()), LONG_TIMEOUT, LONG_TIMEOUT))
            .await
            .unwrap_err();
        check_hidden(&all_error_text(&error), SECRETS);

        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = secret(&format!("http://{closed}"));
        let error = request_text(provider(url, LONG_TIMEOUT, LONG_TIMEOUT)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect);
        check_hidden(&all_error_text(&error), SECRETS);
    }

    #[tokio::test]
    async fn after_the_first_byte_the_idle_timeout_applies() {
        // The delay makes the client wait for the first byte.
        let delay = BodyPart::Delay(Duration::from_millis(5));
        let body = vec![delay, BodyPart::Bytes(": hi\n\n".into()), BodyPart::Hang];
        let server = start_server(http_response(200, "text/event-stream", body)).await;
        let error =
            request_text(provider(server.url(), LONG_TIMEOUT, SHORT_TIMEOUT)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }

    #[tokio::test]
    async fn infinite_timeouts_are_disabled() {
        let server = start_server(whole_response(200, "text/event-stream", HEY_FRAMES)).await;
        let text =
            request_text(provider(server.url(), Duration::MAX, Duration::MAX)).await.unwrap();
        assert_eq!(text, "hey");
    }

    #[tokio::test]
    async fn an_error_status_with_a_hanging_body_is_still_reported() {
        let words = BodyPart::Bytes(r#"{"error":{"message":"slow down"}}"#.into());
        let server =
            start_server(http_response(429, "application/json", vec![words, BodyPart::Hang])).await;
        let error =
            request_text(provider(server.url(), LONG_TIMEOUT, SHORT_TIMEOUT)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert!(error.message().contains("slow down"), "{error}");
    }

    fn current_thread_runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_client_serves_a_second_runtime_while_the_first_is_idle_but_alive() {
        let (url, started) = mpsc::channel();
        std::thread::spawn(move || {
            current_thread_runtime().block_on(async move {
                let server =
                    start_server(whole_response(200, "text/event-stream", HEY_FRAMES)).await;
                url.send(server.url()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        let provider = provider(started.recv().unwrap(), LONG_TIMEOUT, LONG_TIMEOUT);
        let (first, second) = (current_thread_runtime(), current_thread_runtime());
        assert_eq!(first.block_on(request_text(provider.clone())).unwrap(), "hey");
        assert_eq!(second.block_on(request_text(provider)).unwrap(), "hey");
        drop(first);
    }
}
