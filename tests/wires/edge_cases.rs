//! The edges of both wires: what odd servers send, what a history must not become on the way out,
//! and, over HTTP, what is never shown and how waiting ends.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::Value;
use turnstream::item::{Mark, ProviderData, RawJson, ResultKind, StopReason, ToolResult};
use turnstream::provider::{Decoding, anthropic, openai_chat};
use turnstream::stream::{TurnStreamExt, seal};
use turnstream::turn::{Turn, TurnEvent};
use turnstream::{Error, ErrorKind, Event, History, Item, Request, Usage};

use crate::support::items::ends_with;
use crate::support::wires::{frames, turn_of};

const FINISHED: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const CALLED: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
const START: &str =
    r#"{"type":"message_start","message":{"id":"m1","model":"m","usage":{"input_tokens":1}}}"#;
const BLOCK_STOP: &str = r#"{"type":"content_block_stop","index":0}"#;
const END_TURN: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
const TOOL_USE: &str = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

/// A Chat Completions stream.
fn chat(data: &[&str]) -> Result<Turn, Error> {
    turn_of(frames(data), openai_chat::Decoder::new("m", &openai_chat::Dialect::OPENAI))
}

/// A Messages stream.
fn messages(data: &[&str]) -> Result<Turn, Error> {
    turn_of(frames(data), anthropic::Decoder::new("m"))
}

/// A Messages stream with one block, whose start and deltas are given.
fn block(start: &str, deltas: &[&str], reason: &str) -> Result<Turn, Error> {
    let start = format!(r#"{{"type":"content_block_start","index":0,"content_block":{start}}}"#);
    messages(&[&[START, &start], deltas, &[BLOCK_STOP, reason, STOP]].concat())
}

/// A chunk with a piece of a call.
fn call_chunk(call: &str) -> String {
    format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,{call}}}]}}}}]}}"#)
}

fn slices(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

fn text_of(turn: Result<Turn, Error>) -> Result<String, String> {
    turn.map(|turn| turn.text()).map_err(|error| error.to_string())
}

/// The arguments of the calls that may run.
fn runs(turn: Result<Turn, Error>) -> Vec<String> {
    let Ok(turn) = turn else { return Vec::new() };
    let calls = turn.calls();
    match calls.veto() {
        Some(_) => Vec::new(),
        None => calls.iter().map(|call| call.arguments.clone()).collect(),
    }
}

fn history(items: Vec<Item>) -> Request {
    Request::new(History::from_items("h", items))
}

fn sent_to_messages(items: Vec<Item>) -> Value {
    serde_json::from_slice(&anthropic::encode(&history(items), "m").unwrap()).unwrap()
}

fn sent_to_chat(items: Vec<Item>) -> Value {
    let dialect = openai_chat::Dialect::OPENAI;
    serde_json::from_slice(&openai_chat::encode(&history(items), "m", &dialect).unwrap()).unwrap()
}

/// An item that ends its turn.
fn last(item: Item) -> Item {
    ends_with(StopReason::Pause, item, Usage::default())
}

/// A call of `f` and its result.
fn called(id: &str, name: &str, arguments: &str, text: &str, kind: ResultKind) -> Vec<Item> {
    let (call_id, content) = (id.into(), text.into());
    vec![
        Item::user("x"),
        last(Item::tool_call(id, name, arguments)),
        Item::tool_result(ToolResult { call_id, name: name.into(), content, kind, report: None }),
    ]
}

#[track_caller]
fn check_name(name: &Value) {
    let name = name.as_str().unwrap();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    assert!(name.len() <= 64 && name.chars().all(plain), "{name}");
}

#[test]
fn a_chat_chunk_with_unexpected_fields_loses_no_text() {
    #[track_caller]
    fn check(chunk: &str, text: &str) {
        assert_eq!(
            text_of(chat(&[chunk, FINISHED, "[DONE]"])),
            Ok(text.to_owned()),
            "{chunk:.200}"
        );
    }
    // Keys that are said twice.
    check(r#"{"choices":[{"delta":{"content":"a","content":"a"}}]}"#, "a");
    check(r#"{"id":"x","id":"x","choices":[{"delta":{"content":"a"}}]}"#, "a");
    // Half an emoji: in the text, in a field that nobody reads, in a key.
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
    // Nesting, in fields that are read and in others.
    let deep = nested(5000);
    check(&format!(r#"{{"x":{deep},"choices":[{{"delta":{{"content":"a"}}}}]}}"#), "a");
    let delta = format!(r#""content":"a","refusal":{deep},"tool_calls":{deep}"#);
    let chunk = format!(r#"{{"id":{deep},"usage":{deep},"choices":[{{"delta":{{{delta}}}}}]}}"#);
    check(&chunk, "a");
    let two = format!(r#"{{"delta":{{"content":{deep}}}}},{{"delta":{{"content":"a"}}}}"#);
    check(&format!(r#"{{"choices":[{two}]}}"#), "");
    // Something else where an object is due.
    check(r#"{"choices":[null,5,{"delta":{"content":"a"}}]}"#, "a");
    check(r#"{"choices":[{"delta":{"content":["x",{"type":"text","text":"a"}]}}]}"#, "a");
    check(r#"{"error":"","choices":[{"delta":{"content":"a"}}]}"#, "a");
    for error in ["null", "false", "\"\""] {
        check(&format!(r#"{{"choices":[{{"error":{error},"delta":{{"content":"a"}}}}]}}"#), "a");
    }
}

#[test]
fn chat_frames_that_are_not_chunks_are_ignored() {
    const TEXT: &str = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    for odd in ["", "null", r#"{"choices":"x"}"#, r#"{"choices":5}"#, r#"{"choices":true}"#] {
        assert_eq!(text_of(chat(&[odd, TEXT, FINISHED, "[DONE]"])), Ok("a".to_owned()), "{odd}");
    }
}

#[test]
fn an_anthropic_block_with_unexpected_fields_loses_no_text() {
    #[track_caller]
    fn check(start: &str, delta: &str, text: &str) {
        let turn = block(start, &[delta], END_TURN);
        assert_eq!(text_of(turn), Ok(text.to_owned()), "{start} {delta}");
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
    let body = idle + &frames(&[START, END_TURN, STOP]);
    assert_eq!(text_of(turn_of(body, anthropic::Decoder::new("m"))), Ok(String::new()));
    assert_eq!(text_of(messages(&[START, END_TURN, "[DONE]"])), Ok(String::new()));
}

#[test]
fn an_error_in_a_message_stream_is_understood_in_any_shape() {
    let untyped = r#"{"error":{"type":"overloaded_error","message":"busy"}}"#;
    assert_eq!(messages(&[START, untyped]).unwrap_err().kind(), ErrorKind::Overloaded);
    let flat = messages(&[START, r#"{"type":"error","message":"busy now"}"#]).unwrap_err();
    assert!(flat.message().contains("busy now"), "{flat}");
}

/// The arguments that the call below is meant to have.
const WHOLE: &str = r#"{"path":"/x"}"#;

#[test]
fn an_anthropic_call_runs_with_its_own_arguments_or_not_at_all() {
    const CALL: &str = r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#;
    #[track_caller]
    fn check(deltas: &[&str]) {
        let runs = runs(block(CALL, deltas, TOOL_USE));
        assert!(runs.iter().all(|arguments| arguments == WHOLE), "{runs:?} of {deltas:?}");
    }
    let delta = |index: u32, kind: &str, json: &str| {
        let delta = format!(r#"{{{kind}"partial_json":{json}}}"#);
        format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
    };
    let (kind, json) = (r#""type":"input_json_delta","#, r#""{\"path\":\"/x\"}""#);
    assert_eq!(runs(block(CALL, &[&delta(0, kind, json)], TOOL_USE)), [WHOLE]);
    // As an object, without the kind of the delta, for another block, behind the end of its own.
    check(&[&delta(0, kind, WHOLE)]);
    check(&[&delta(0, "", json)]);
    check(&[&delta(3, kind, json)]);
    check(&[BLOCK_STOP, &delta(0, kind, json)]);
}

#[test]
fn a_chat_call_runs_with_its_own_arguments_or_not_at_all() {
    fn run(calls: &[&str], after: &[&str]) -> Vec<String> {
        let chunks = |calls: &[&str]| calls.iter().map(|call| call_chunk(call)).collect::<Vec<_>>();
        let (calls, after) = (chunks(calls), chunks(after));
        runs(chat(&[&slices(&calls)[..], &[CALLED], &slices(&after), &["[DONE]"]].concat()))
    }
    #[track_caller]
    fn check(calls: &[&str], after: &[&str]) {
        let runs = run(calls, after);
        assert!(runs.iter().all(|arguments| arguments == WHOLE), "{runs:?} of {calls:?}");
    }
    let whole = r#""function":{"arguments":"{\"path\":\"/x\"}"}"#;
    let named = r#""id":"a","function":{"name":"f"}"#;
    assert_eq!(run(&[named, whole], &[]), [WHOLE]);
    // The name comes last.
    assert_eq!(run(&[whole, named], &[]), [WHOLE]);
    // In an array, with a number in the middle, not in an object, behind the end.
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
        let mut all = runs(chat(&[&slices(&chunks)[..], &[CALLED, "[DONE]"]].concat()));
        all.extend(runs(block(start, &slices(&deltas), TOOL_USE)));
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
    let turn = block(r#"{"type":"tool_use","id":"t1","input":{}}"#, &[], TOOL_USE);
    assert!(turn.is_err(), "{turn:?}");
}

#[test]
fn a_turn_with_deeply_nested_provider_data_round_trips_through_a_record() {
    let input = nested(120);
    let start =
        format!(r#"{{"type":"server_tool_use","id":"s","name":"web_search","input":{input}}}"#);
    let turn = Arc::new(block(&start, &[], END_TURN).unwrap());
    let record = serde_json::to_string(&Event::Turn(TurnEvent::TurnComplete { turn })).unwrap();
    let back: Result<Event, _> = serde_json::from_str(&record);
    assert!(back.is_ok(), "{back:?}");
}

#[test]
fn an_empty_error_result_is_sent_in_an_accepted_form() {
    let sent = sent_to_messages(called("c", "f", "{}", "", ResultKind::Error));
    let result = &sent["messages"][2]["content"][0];
    assert!(result["is_error"] != true || result["content"].is_array(), "{result}");
}

#[test]
fn white_space_only_text_is_not_sent() {
    let request = history(vec![Item::user("x")]).with_system(" \n");
    let sent: Value = serde_json::from_slice(&anthropic::encode(&request, "m").unwrap()).unwrap();
    assert!(sent["system"].is_null(), "{sent}");
    let error = anthropic::encode(&history(vec![Item::user(" ")]), "m").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

#[test]
fn the_first_message_is_the_users() {
    let sent = sent_to_messages(vec![Item::user(" "), last(Item::text("a")), Item::user("b")]);
    assert_eq!(sent["messages"][0]["role"], "user", "{sent}");
}

#[test]
fn ids_and_names_of_other_wires_are_sent_in_an_accepted_alphabet() {
    let id = "call.1:x y".to_owned() + &"z".repeat(80);
    let sent = sent_to_messages(called(&id, "f", "{}", "r", ResultKind::Ok));
    let (call, result) = (&sent["messages"][1]["content"][0], &sent["messages"][2]["content"][0]);
    check_name(&call["id"]);
    assert_eq!(call["id"], result["tool_use_id"]);
    let name = "functions.get weather";
    let sent = sent_to_messages(called("c", name, "{}", "r", ResultKind::UnknownTool));
    check_name(&sent["messages"][1]["content"][0]["name"]);
}

#[test]
fn a_history_with_calls_is_never_sent_without_tools() {
    let mut items = called("c", "f", "{}", "r", ResultKind::Ok);
    items.push(Item::user("y"));
    let sent = sent_to_messages(items);
    assert!(sent["tools"].is_array(), "{sent}");
}

#[test]
fn a_lone_surrogate_in_old_arguments_is_not_sent() {
    let items = called("c", "f", r#"{"p":"\ud800"}"#, "r", ResultKind::Ok);
    let body = String::from_utf8(anthropic::encode(&history(items), "m").unwrap()).unwrap();
    assert!(!body.contains(r"\ud800"), "{body}");
}

#[test]
fn no_message_ends_in_thinking() {
    let mut thought = Item::reasoning("hm").with_mark(Mark::Interrupted);
    thought.provider_data = Some(Arc::new(ProviderData {
        provider: "anthropic".into(),
        model: "m".into(),
        value: RawJson::parse(r#"{"signature":"s"}"#).unwrap(),
    }));
    let sent = sent_to_messages(vec![Item::user("x"), thought, Item::user("y")]);
    for message in sent["messages"].as_array().unwrap() {
        if let Some(block) = message["content"].as_array().and_then(|blocks| blocks.last()) {
            assert_ne!(block["type"], "thinking", "{message}");
        }
    }
}

#[test]
fn later_items_do_not_change_how_a_text_was_sent() {
    let mut items = vec![Item::user("x"), last(Item::text("one \n"))];
    let before = sent_to_messages(items.clone());
    items.push(last(Item::text("two")));
    let after = sent_to_messages(items);
    assert_eq!(before["messages"][1]["content"][0], after["messages"][1]["content"][0]);

    let mut items = vec![Item::user("x"), Item::text("one").with_mark(Mark::Interrupted)];
    let before = sent_to_chat(items.clone());
    items.push(last(Item::text("two")));
    assert_eq!(before["messages"][1], sent_to_chat(items)["messages"][1]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_hangs_after_its_last_chunk_is_a_complete_turn() {
    let text = r#"{"choices":[{"delta":{"content":"hey"},"finish_reason":"stop"}]}"#;
    let body = Bytes::from(frames(&[text, "[DONE]"]));
    let body = stream::iter([Ok::<_, Error>(body)]).chain(stream::pending());
    let turn = seal(
        &History::from_id("h"),
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
    use turnstream::testing::http::{BodyPart, HttpResponse, LoopbackServer};
    use turnstream::{Error, ErrorKind, Item, Request};

    use super::history;

    const KEY: &str = "sk-ab/cd+ef=12345";
    const PROMPT: &str = "PROMPTWORD";
    const HEY: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hey\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    const LONG: Duration = Duration::from_hours(1);
    const SHORT: Duration = Duration::from_millis(50);

    fn request() -> Request {
        history(vec![Item::user(format!("hi {PROMPT}"))])
    }

    fn response(status: u16, kind: &str, body: Vec<BodyPart>) -> HttpResponse {
        HttpResponse { status, headers: vec![("content-type".into(), kind.into())], body }
    }

    fn whole(status: u16, kind: &str, body: impl Into<bytes::Bytes>) -> HttpResponse {
        response(status, kind, vec![BodyPart::Bytes(body.into())])
    }

    async fn serve(response: HttpResponse) -> LoopbackServer {
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

    /// Asks, and fails rather than to wait for ever.
    async fn ask(provider: OpenAiChat) -> Result<String, Error> {
        let turn = provider.stream_turn(request()).into_turn();
        let turn = tokio::time::timeout(Duration::from_mins(1), turn).await.expect("it hangs");
        turn.map(|turn| turn.text())
    }

    async fn ask_with_key(url: impl AsRef<str>) -> Result<String, Error> {
        ask(provider(url, LONG, LONG).with_api_key(KEY)).await
    }

    /// All that an error can show.
    fn shown(error: &Error) -> String {
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
            let server = serve(response).await;
            let error = ask_with_key(server.url()).await.unwrap_err();
            check_hidden(&shown(&error), &[KEY, "sk-ab%2F", PROMPT]);
        }
        for key in [
            KEY.to_owned(),
            KEY.replace('/', "\\/"),
            KEY.replace('+', "\\u002b"),
            KEY.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D"),
        ] {
            let error = format!(r#"{{"error":{{"message":"bad key {key}","param":"{key}"}}}}"#);
            check(whole(401, "application/json", error.clone())).await;
            check(whole(200, "text/event-stream", format!("data: {error}\n\n"))).await;
        }
        let mut response = whole(401, "application/json", "{}");
        response.headers.push(("x-request-id".into(), format!("id-{KEY}")));
        check(response).await;
        // Nor by the server that was asked.
        let server = serve(whole(200, "text/event-stream", HEY)).await;
        ask_with_key(server.url()).await.unwrap();
        check_hidden(&format!("{server:?}"), &[KEY, PROMPT]);
    }

    #[tokio::test]
    async fn secrets_in_the_base_url_are_never_shown() {
        const SECRETS: &[&str] = &["hunter2pw", "QUERYSECRET"];
        let secret =
            |url: &str| url.replace("http://", "http://me:hunter2pw@") + "/v1?api-key=QUERYSECRET";
        let server = LoopbackServer::start(|request| {
            let error = format!(r#"{{"error":{{"message":"no route {}"}}}}"#, request.path);
            whole(400, "application/json", error)
        })
        .await
        .unwrap();
        let error = ask(provider(secret(&server.url()), LONG, LONG)).await.unwrap_err();
        check_hidden(&shown(&error), SECRETS);

        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = secret(&format!("http://{closed}"));
        let error = ask(provider(url, LONG, LONG)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect);
        check_hidden(&shown(&error), SECRETS);
    }

    #[tokio::test]
    async fn after_the_first_byte_the_idle_timeout_applies() {
        // The delay has the client wait for the first byte before it comes.
        let delay = BodyPart::Delay(Duration::from_millis(5));
        let body = vec![delay, BodyPart::Bytes(": hi\n\n".into()), BodyPart::Hang];
        let server = serve(response(200, "text/event-stream", body)).await;
        let error = ask(provider(server.url(), LONG, SHORT)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }

    #[tokio::test]
    async fn infinite_timeouts_are_no_timeouts() {
        let server = serve(whole(200, "text/event-stream", HEY)).await;
        let text = ask(provider(server.url(), Duration::MAX, Duration::MAX)).await.unwrap();
        assert_eq!(text, "hey");
    }

    #[tokio::test]
    async fn an_error_status_with_a_hanging_body_is_still_reported() {
        let words = BodyPart::Bytes(r#"{"error":{"message":"slow down"}}"#.into());
        let server = serve(response(429, "application/json", vec![words, BodyPart::Hang])).await;
        let error = ask(provider(server.url(), LONG, SHORT)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert!(error.message().contains("slow down"), "{error}");
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_client_serves_a_second_runtime_while_the_first_is_idle_but_alive() {
        let (url, started) = mpsc::channel();
        std::thread::spawn(move || {
            runtime().block_on(async move {
                let server = serve(whole(200, "text/event-stream", HEY)).await;
                url.send(server.url()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        let provider = provider(started.recv().unwrap(), LONG, LONG);
        let (first, second) = (runtime(), runtime());
        assert_eq!(first.block_on(ask(provider.clone())).unwrap(), "hey");
        assert_eq!(second.block_on(ask(provider)).unwrap(), "hey");
        drop(first);
    }
}
