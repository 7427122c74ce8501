//! The loopback server over HTTP: every wire, every fault, and the requests that a strict vendor
//! refuses.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use turnstream::provider::Reply;
use turnstream_testing::{Answer, ModelServer, Wire};

/// The raw HTTP response to a request.
struct RawResponse {
    status: u16,
    head: String,
    body: String,
}

impl RawResponse {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

async fn send_bytes(server: &ModelServer, path: &str, body: impl AsRef<[u8]>) -> RawResponse {
    let body = body.as_ref();
    let mut socket = TcpStream::connect(server.url().replace("http://", "")).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nconnection: close\r\nanthropic-version: 2023-06-01\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(body).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    let mut body = String::new();
    while let Some((size, chunk)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&chunk[..size]);
        rest = &chunk[size + 2..];
    }
    RawResponse { status: head[9..12].parse().unwrap(), head: head.to_owned(), body }
}

async fn post_json(server: &ModelServer, path: &str, body: &Value) -> RawResponse {
    send_bytes(server, path, body.to_string()).await
}

/// The paths to which a vendor's own SDK sends its requests.
const VENDOR_PATHS: [&str; 5] = [
    "/v1/messages",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1beta/models/scripted:streamGenerateContent?alt=sse",
    "/api/chat",
];

/// The smallest valid request.
fn minimal_request(wire: Wire) -> Value {
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    match wire {
        Wire::Anthropic => {
            json!({ "model": "scripted", "max_tokens": 9, "stream": true, "messages": messages })
        }
        Wire::OpenAiChat => json!({
            "model": "scripted", "stream": true, "messages": messages,
            "stream_options": { "include_usage": true },
        }),
        Wire::OpenAiResponses => json!({
            "model": "scripted", "stream": true, "input": messages,
            "include": ["reasoning.encrypted_content"],
        }),
        Wire::Gemini => json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }] }),
        Wire::Ollama => json!({ "model": "scripted", "messages": messages }),
        _ => unreachable!("this test knows five wires"),
    }
}

fn sample_reply() -> Reply {
    Reply::new().think("Hm").say("Hi you").call("f", json!({ "a": 1 }))
}

#[tokio::test]
async fn one_server_speaks_every_wire_by_path() {
    let server = ModelServer::start(|asked| {
        assert_eq!((asked.model.as_str(), &asked.body), ("scripted", &minimal_request(asked.wire)));
        sample_reply()
    })
    .await
    .unwrap();
    for (at, (wire, path)) in Wire::ALL.into_iter().zip(VENDOR_PATHS).enumerate() {
        for (n, path) in [path.to_owned(), format!("/proxy/{}", &path[1..])].iter().enumerate() {
            let got = post_json(&server, path, &minimal_request(wire)).await;
            assert_eq!(got.status, 200, "{}", got.body);
            let lines = wire == Wire::Ollama;
            let content_type = if lines { "application/x-ndjson" } else { "text/event-stream" };
            let content_type = format!("content-type: {content_type}");
            assert!(got.head.contains(&content_type), "{}", got.head);
            // The same as without a network, except for the numbers in the ids.
            let expected = String::from_utf8(Answer::reply(sample_reply()).to_bytes(wire)).unwrap();
            let number = format!("_{:04}", 2 * at + n);
            let seen = got.body.replace(&number, "_0000");
            assert_eq!(seen.len(), expected.len(), "{wire}: {seen}");
            let has_ids = matches!(wire, Wire::Anthropic | Wire::OpenAiResponses);
            assert!(!has_ids || seen.contains("_0000"));
        }
    }
    assert_eq!(server.requests().len(), 10);
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(
        server.http_server().requests()[7].path,
        "/proxy/v1beta/models/scripted:streamGenerateContent?alt=sse"
    );
}

#[tokio::test]
async fn gemini_without_alt_sse_is_one_json_array() {
    let server = ModelServer::gemini(|_, _| "Hi you").await.unwrap();
    let got = post_json(
        &server,
        "/v1beta/models/m:streamGenerateContent",
        &minimal_request(Wire::Gemini),
    )
    .await;
    assert!(got.head.contains("content-type: application/json"), "{}", got.head);
    let chunks = got.json();
    assert_eq!(chunks.as_array().unwrap().len(), 3);
    assert_eq!(chunks[2]["candidates"][0]["finishReason"], "STOP");
}

#[tokio::test]
async fn usage_on_the_chat_wire_is_sent_only_if_requested() {
    let server = ModelServer::openai_chat(|_, _| "Hi").await.unwrap();
    let mut body = minimal_request(Wire::OpenAiChat);
    assert!(post_json(&server, VENDOR_PATHS[1], &body).await.body.contains("\"usage\":{"));
    body["stream_options"] = Value::Null;
    assert!(!post_json(&server, VENDOR_PATHS[1], &body).await.body.contains("usage"));
}

#[tokio::test]
async fn encrypted_reasoning_is_sent_only_if_requested() {
    let server = ModelServer::openai_responses(|_, _| Reply::new().think("Hm").say("Hi"));
    let server = server.await.unwrap();
    let mut body = minimal_request(Wire::OpenAiResponses);
    assert!(post_json(&server, VENDOR_PATHS[2], &body).await.body.contains("encrypted_content"));
    body["include"] = json!([]);
    assert!(!post_json(&server, VENDOR_PATHS[2], &body).await.body.contains("encrypted_content"));
}

#[tokio::test]
async fn an_invalid_request_gets_an_error_in_the_wires_shape() {
    async fn check(server: &ModelServer, path: &str, body: &str, status: u16, says: &str) {
        let got = send_bytes(server, path, body).await;
        assert_eq!(got.status, status, "{path}: {}", got.body);
        assert!(got.body.contains(says), "{path}: {}", got.body);
    }
    let server =
        ModelServer::start(|_| -> Reply { panic!("the model is not called") }).await.unwrap();
    check(&server, "/v1/models", "{}", 404, "no such path: POST /v1/models").await;
    let messages = r#"{"type":"error","error":{"type":"invalid_request_error","#;
    check(&server, VENDOR_PATHS[0], "no JSON", 400, messages).await;
    check(&server, VENDOR_PATHS[1], "[]", 400, "not a JSON object").await;
    check(&server, VENDOR_PATHS[2], "{}", 400, "Missing required parameter: 'model'").await;
    check(&server, VENDOR_PATHS[3], "{}", 400, r#""status":"INVALID_ARGUMENT""#).await;
    check(&server, VENDOR_PATHS[4], "{}", 400, r#"{"error":"model is required; "#).await;
    let mut whole = minimal_request(Wire::Anthropic);
    whole["stream"] = false.into();
    check(&server, VENDOR_PATHS[0], &whole.to_string(), 400, "this server only streams").await;
    let one = ModelServer::anthropic(|_, _| "Hi").await.unwrap();
    let other = minimal_request(Wire::OpenAiChat).to_string();
    check(&one, VENDOR_PATHS[1], &other, 404, "not_found_error").await;
    assert_eq!(server.violations().iter().filter(|c| c.contains("streams")).count(), 2);
}

#[tokio::test]
async fn a_lenient_server_accepts_any_object() {
    let server = ModelServer::start(|_| "Hi").await.unwrap().lenient();
    for path in VENDOR_PATHS {
        assert_eq!(post_json(&server, path, &json!({ "odd": true })).await.status, 200);
    }
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn rejected_requests_do_not_advance_the_script() {
    let server = ModelServer::start(|asked| format!("number {}", asked.index)).await.unwrap();
    assert_eq!(post_json(&server, VENDOR_PATHS[0], &json!({})).await.status, 400);
    let got = post_json(&server, VENDOR_PATHS[0], &minimal_request(Wire::Anthropic)).await;
    assert!(got.body.contains("\"text\":\"0\""), "{}", got.body);
    assert_eq!(server.requests().len(), 2);
}

/// The violations in a second request, which continues the first response: `turn` builds its body
/// from the first stream.
async fn second_request_violations(
    wire: Wire,
    reply: fn() -> Reply,
    model: &str,
    turn: impl Fn(&str) -> Value,
) -> String {
    let server = ModelServer::start(move |asked| match asked.index {
        0 => reply(),
        _ => Reply::text("ok"),
    });
    let server = server.await.unwrap();
    let path = VENDOR_PATHS[Wire::ALL.iter().position(|w| *w == wire).unwrap()];
    let path = path.replace("scripted", model);
    let first = post_json(&server, &path, &minimal_request(wire)).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let second = post_json(&server, &path, &turn(&first.body)).await;
    assert_eq!(second.status == 200, server.violations().is_empty());
    server.violations().join("; ")
}

/// The last value of a string field in a stream.
fn last_string_field(stream: &str, name: &str) -> String {
    let (_, rest) = stream.rsplit_once(&format!("\"{name}\":\"")).unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

#[tokio::test]
async fn a_thinking_block_is_sent_back_with_its_signature() {
    async fn check(reply: fn() -> Reply, change: fn(&mut Value)) -> String {
        second_request_violations(Wire::Anthropic, reply, "m", |stream| {
            let signature = last_string_field(stream, "signature");
            let mut thinking =
                json!({ "type": "thinking", "thinking": "Hm", "signature": signature });
            change(&mut thinking);
            let mut body = minimal_request(Wire::Anthropic);
            body["messages"] = json!([
                { "role": "user", "content": "Hi" },
                { "role": "assistant", "content": [thinking, { "type": "text", "text": "Hi" }] },
                { "role": "user", "content": "And?" },
            ]);
            body
        })
        .await
    }
    let own = || Reply::new().think("Hm").say("Hi");
    let scripted = || Reply::new().think("Hm").sign("c2ln").say("Hi");
    let invalid = "messages.1.content.0: Invalid `signature` in `thinking` block";
    for reply in [own, scripted] {
        assert_eq!(check(reply, |_| ()).await, "");
        assert_eq!(check(reply, |block| block["thinking"] = "Hm!".into()).await, invalid);
        assert_eq!(check(reply, |block| block["signature"] = "Zm9y".into()).await, invalid);
    }
    assert_eq!(check(scripted, |block| block["signature"] = "c2ln".into()).await, "");
}

#[tokio::test]
async fn a_reasoning_item_is_sent_back_encrypted_with_its_follower() {
    async fn check(change: fn(&mut Value)) -> String {
        let reply = || Reply::new().think("Hm").call_raw("c", "f", "{}");
        second_request_violations(Wire::OpenAiResponses, reply, "m", |stream| {
            let encrypted = last_string_field(stream, "encrypted_content");
            let mut body = minimal_request(Wire::OpenAiResponses);
            body["input"] = json!([
                { "role": "user", "content": "Hi" },
                { "type": "reasoning", "id": "rs_0000_0", "summary": [],
                  "encrypted_content": encrypted },
                { "type": "function_call", "id": "fc_0000_1", "call_id": "c", "name": "f",
                  "arguments": "{}" },
                { "type": "function_call_output", "call_id": "c", "output": "" },
            ]);
            change(&mut body["input"]);
            body
        })
        .await
    }
    assert_eq!(check(|_| ()).await, "");
    let forged = check(|input| input[1]["encrypted_content"] = "Zm9yZ2Vk".into()).await;
    assert!(forged.contains("Zm9yZ2Vk... could not be verified"), "{forged}");
    let alone = check(|input| drop(input.as_array_mut().unwrap().remove(1))).await;
    let expected = "Item 'fc_0000_1' of type 'function_call' was provided without its required \
                    'reasoning' item: 'rs_0000_0'.";
    assert_eq!(alone, expected);
    // Without ids, the items are sent in full.
    let nameless = |input: &mut Value| {
        for item in input.as_array_mut().unwrap() {
            item.as_object_mut().unwrap().shift_remove("id");
        }
    };
    assert_eq!(check(nameless).await, "");
}

#[tokio::test]
async fn a_thought_signature_is_sent_back_on_its_part() {
    const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";
    async fn check(change: fn(&mut Value)) -> String {
        let reply = || Reply::new().call("f", json!({ "a": 1 })).call("g", json!({}));
        second_request_violations(Wire::Gemini, reply, "gemini-3-pro", |stream| {
            let signature = last_string_field(stream, "thoughtSignature");
            let mut body = minimal_request(Wire::Gemini);
            let call = |name: &str, args: Value| {
                json!({ "functionCall": { "name": name, "args": args } })
            };
            let result = |name: &str| {
                json!({ "functionResponse": { "name": name, "response": { "output": 1 } } })
            };
            let mut first = call("f", json!({ "a": 1 }));
            first["thoughtSignature"] = signature.into();
            body["contents"] = json!([
                { "role": "user", "parts": [{ "text": "Hi" }] },
                { "role": "model", "parts": [first, call("g", json!({}))] },
                { "role": "user", "parts": [result("f"), result("g")] },
            ]);
            change(&mut body["contents"][1]["parts"]);
            body
        })
        .await
    }
    assert_eq!(check(|_| ()).await, "");
    let invalid = "Thought signature is not valid. (contents[1].parts[0])";
    assert_eq!(check(|parts| parts[0]["thoughtSignature"] = "Zm9y".into()).await, invalid);
    assert_eq!(check(|parts| parts[0]["functionCall"]["args"]["a"] = 2.into()).await, invalid);
    let gone = check(|parts| parts[0]["thoughtSignature"] = Value::Null).await;
    assert!(gone.contains("missing a thought_signature"), "{gone}");
    assert_eq!(check(|parts| parts[0]["thoughtSignature"] = SKIP_SIGNATURE.into()).await, "");
}

#[tokio::test]
async fn reasoning_details_are_sent_back_as_signed() {
    async fn check(details: Value) -> String {
        let reply = || Reply::new().think("Hm").sign("c2ln").think_hidden("b3Bh").say("Hi");
        second_request_violations(Wire::OpenAiChat, reply, "m", |_| {
            let mut body = minimal_request(Wire::OpenAiChat);
            body["messages"] = json!([
                { "role": "user", "content": "Hi" },
                { "role": "assistant", "content": "Hi", "reasoning_details": details },
                { "role": "user", "content": "And?" },
            ]);
            body
        })
        .await
    }
    let text = |text: &str| json!({ "type": "reasoning.text", "text": text, "signature": "c2ln" });
    let hidden = |data: &str| json!({ "type": "reasoning.encrypted", "data": data });
    assert_eq!(check(json!([text("Hm"), hidden("b3Bh")])).await, "");
    let pieces = json!([
        { "type": "reasoning.text", "text": "Hm" },
        { "type": "reasoning.text", "signature": "c2ln" },
        hidden("b3Bh"),
    ]);
    assert_eq!(check(pieces).await, "");
    assert!(check(json!([text("Hm!")])).await.contains("reasoning_details[0]"));
    assert!(check(json!([hidden("b3B")])).await.contains("reasoning_details[0]"));
}

#[tokio::test]
async fn status_and_headers_of_an_answer_are_those_of_the_script() {
    let server = ModelServer::start(|asked| match asked.index {
        0 => Answer::error(529).with_header("retry-after", "1").with_header("X-Odd", "yes"),
        1 => Answer::reply("Hi").with_header("Content-Type", "text/plain").with_status(203),
        2 => Answer::html_page(502),
        3 => Answer::error(500).with_status(200),
        _ => Answer::raw("application/json", "[]"),
    });
    let server = server.await.unwrap();
    let hi = minimal_request(Wire::Anthropic);
    let ask = || post_json(&server, VENDOR_PATHS[0], &hi);
    let got = ask().await;
    assert_eq!(got.status, 529);
    assert!(got.head.contains("retry-after: 1\r\nX-Odd: yes\r\n"), "{}", got.head);
    assert!(got.body.contains("overloaded_error"), "{}", got.body);
    let got = ask().await;
    assert_eq!(got.status, 203);
    assert!(got.head.contains("Content-Type: text/plain\r\n"), "{}", got.head);
    assert!(!got.head.contains("event-stream"), "{}", got.head);
    let got = ask().await;
    assert!(got.status == 502 && got.body.starts_with("<html>"), "{}", got.body);
    let got = ask().await;
    assert_eq!((got.status, &got.json()["error"]["type"]), (200, &json!("api_error")));
    assert_eq!(ask().await.body, "[]");
}

/// Tests with every provider of the crate.
mod over_http {
    use std::sync::{Arc, LazyLock};
    use std::time::Duration;

    use futures::StreamExt;
    use turnstream::event::EndReason;
    use turnstream::http::{HttpClient, Timeouts};
    use turnstream::provider::{Anthropic, Gemini, Ollama, OpenAiChat, OpenAiResponses, Provider};
    use turnstream::request::Options;
    use turnstream::stream::TurnStreamExt;
    use turnstream::tool::{Tool, ToolSpec};
    use turnstream::turn::Turn;
    use turnstream::{Agent, Error, ErrorKind, History, Item, Request, Usage};
    use turnstream_testing::{Fault, FaultPosition, LineEnd, Noise};

    use super::*;

    const NO_TIMEOUT: Duration = Duration::MAX;

    /// A provider for each wire, for one server.
    fn all_providers(server: &ModelServer, idle: Duration) -> Vec<(Wire, Arc<dyn Provider>)> {
        // A client is expensive to build, and works in every runtime.
        static HTTP_CLIENT: LazyLock<HttpClient> = LazyLock::new(HttpClient::without_proxy);
        let http = || HTTP_CLIENT.clone();
        let timeouts = Timeouts {
            first_byte: NO_TIMEOUT,
            first_output: NO_TIMEOUT,
            idle,
            idle_output: NO_TIMEOUT,
            ..Timeouts::default()
        };
        vec![
            (
                Wire::Anthropic,
                Arc::new(
                    Anthropic::new("m")
                        .with_base_url(server.url())
                        .unwrap()
                        .with_http_client(http())
                        .with_timeouts(timeouts)
                        .without_retries(),
                ),
            ),
            (
                Wire::OpenAiChat,
                Arc::new(
                    OpenAiChat::new("m")
                        .with_base_url(server.url())
                        .unwrap()
                        .with_http_client(http())
                        .with_timeouts(timeouts)
                        .without_retries(),
                ),
            ),
            (
                Wire::OpenAiResponses,
                Arc::new(
                    OpenAiResponses::new("m")
                        .with_base_url(server.url())
                        .unwrap()
                        .with_http_client(http())
                        .with_timeouts(timeouts)
                        .without_retries(),
                ),
            ),
            (
                Wire::Gemini,
                Arc::new(
                    Gemini::new("m")
                        .with_base_url(server.url())
                        .unwrap()
                        .with_http_client(http())
                        .with_timeouts(timeouts)
                        .without_retries(),
                ),
            ),
            (
                Wire::Ollama,
                Arc::new(
                    Ollama::new("m")
                        .with_base_url(server.url())
                        .unwrap()
                        .with_http_client(http())
                        .with_timeouts(timeouts)
                        .without_retries(),
                ),
            ),
        ]
    }

    fn request() -> Request {
        Request::new(History::from_items("h", [Item::user("hi")]))
    }

    fn add_tool() -> Tool {
        let integer = json!({ "type": "integer" });
        let spec = ToolSpec::new(
            "add",
            "Adds",
            json!({
                "type": "object", "properties": { "a": integer, "b": integer },
                "required": ["a", "b"],
            }),
        );
        let sum = |args: Value| args["a"].as_i64().unwrap_or(0) + args["b"].as_i64().unwrap_or(0);
        Tool::raw(spec, move |args, _cx| async move { sum(args) }).unwrap()
    }

    /// The result of an answer on each wire.
    async fn turns_on_every_wire(
        answer: Answer,
        idle: Duration,
    ) -> Vec<(Wire, Result<Arc<Turn>, Error>)> {
        let server = ModelServer::start(move |_| answer.clone()).await.unwrap();
        let mut turns = Vec::new();
        for (wire, model) in all_providers(&server, idle) {
            turns.push((wire, model.stream_turn(request()).into_turn().await));
        }
        turns
    }

    /// Checks the text of the turn on each wire.
    async fn check_text(answer: Answer, text: &str) {
        let shown = format!("{answer:?}");
        for (wire, turn) in turns_on_every_wire(answer, NO_TIMEOUT).await {
            assert_eq!(turn.unwrap().text(), text, "{wire} {shown}");
        }
    }

    /// Checks the kind of the error on each wire.
    async fn check_error(answer: Answer, kind: ErrorKind) -> Vec<Error> {
        let shown = format!("{answer:?}");
        let mut errors = Vec::new();
        for (wire, turn) in turns_on_every_wire(answer, Duration::from_millis(50)).await {
            let error = turn.unwrap_err();
            assert_eq!(error.kind(), kind, "{wire} {shown}: {error}");
            errors.push(error);
        }
        errors
    }

    #[tokio::test]
    async fn a_tool_loop_runs_over_every_wire_from_one_script() {
        let server = ModelServer::start(|asked| match asked.index % 3 {
            0 => Reply::new().think("A sum.").call("add", json!({ "a": 1, "b": 2 })),
            1 => Reply::new().say("And two more.").call("add", json!({ "a": 3, "b": 4 })).call_raw(
                "own_id",
                "add",
                r#"{"a":5,"b":6}"#,
            ),
            _ => Reply::text("3, 7 and 11."),
        });
        let server = server.await.unwrap();
        for (wire, model) in all_providers(&server, NO_TIMEOUT) {
            let outcome = Agent::new(model).with_tools([add_tool()]).run("sum up").outcome().await;
            let seen = (outcome.reason, outcome.text.as_str());
            assert_eq!(seen, (EndReason::Completed, "3, 7 and 11."), "{wire}");
            let last = server.requests().last().unwrap().to_string();
            assert!(
                ["3", "7", "11"].iter().all(|sum| last.contains(&format!("\"{sum}\""))),
                "{last}"
            );
        }
        assert_eq!(server.violations(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn scripted_usage_is_decoded() {
        let usage = Usage {
            input_tokens: 100,
            output_tokens: 20,
            cache_read_input_tokens: 30,
            reasoning_tokens: 5,
            ..Usage::default()
        };
        for (wire, turn) in
            turns_on_every_wire(Reply::text("hi").usage(usage).into(), NO_TIMEOUT).await
        {
            // Ollama does not count reasoning tokens separately.
            let reasoning_tokens = if wire == Wire::Ollama { 0 } else { usage.reasoning_tokens };
            assert_eq!(turn.unwrap().usage(), Usage { reasoning_tokens, ..usage }, "{wire}");
        }
    }

    #[tokio::test]
    async fn a_body_truncated_at_any_byte_is_an_error_or_the_whole_turn() {
        async fn check(cut: Fault, kinds: &[ErrorKind]) {
            for (wire, turn) in
                turns_on_every_wire(Answer::reply("Hi you").with_fault(cut.clone()), NO_TIMEOUT)
                    .await
            {
                match turn {
                    Ok(turn) => assert_eq!(turn.text(), "Hi you", "{wire} {cut:?}"),
                    Err(error) => {
                        assert!(kinds.contains(&error.kind()), "{wire} {cut:?}: {error}");
                    }
                }
            }
        }
        let longest = Wire::ALL.map(|wire| Answer::reply("Hi you").to_bytes(wire).len());
        for n in (0..longest.into_iter().max().unwrap()).step_by(41) {
            let after = FaultPosition::Bytes(n);
            check(Fault::Cut(after), &[ErrorKind::IncompleteTurn]).await;
            check(Fault::EndEarly(after), &[ErrorKind::IncompleteTurn]).await;
        }
    }

    #[tokio::test]
    async fn a_stream_that_breaks_off_is_not_a_complete_turn() {
        for mishap in [Fault::Cut, Fault::EndEarly] {
            let answer = Answer::reply("Hi you").with_fault(mishap(FaultPosition::Events(2)));
            check_error(answer, ErrorKind::IncompleteTurn).await;
        }
        check_error(
            Answer::reply("Hi").with_fault(Fault::NoTerminalMarker),
            ErrorKind::IncompleteTurn,
        )
        .await;
        let error = Error::new(ErrorKind::Overloaded, "busy");
        let failing =
            Answer::reply("Hi you").with_fault(Fault::Error(FaultPosition::Events(2), error));
        check_error(failing, ErrorKind::Overloaded).await;
    }

    #[tokio::test]
    async fn a_reset_is_an_error() {
        let answer = Answer::reply("Hi you").with_fault(Fault::Reset(FaultPosition::Events(2)));
        for (wire, turn) in turns_on_every_wire(answer, NO_TIMEOUT).await {
            assert!(turn.is_err(), "{wire}");
        }
    }

    #[tokio::test]
    async fn a_stream_that_stalls_times_out() {
        for after in [FaultPosition::Bytes(100), FaultPosition::Events(2)] {
            check_error(
                Answer::reply("Hi you").with_fault(Fault::Stall(after)),
                ErrorKind::Timeout,
            )
            .await;
        }
    }

    #[tokio::test]
    async fn dropping_a_turn_that_stalls_closes_the_connection() {
        let words = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight "];
        let reply = words.into_iter().fold(Reply::new(), Reply::say);
        // By then every wire has sent some text, and there is more to come.
        let stall = Answer::reply(reply).with_fault(Fault::Stall(FaultPosition::Events(6)));
        let server = ModelServer::start(move |_| stall.clone()).await.unwrap();
        for (at, (_, model)) in all_providers(&server, NO_TIMEOUT).into_iter().enumerate() {
            let mut turn = model.stream_turn(request());
            turn.next().await.unwrap().unwrap();
            drop(turn);
            while server.http_server().closed_early_count() <= at {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn framing_and_chunking_of_a_stream_change_nothing() {
        let mishaps = [
            Fault::NoDoneMarker,
            Fault::NoFinalBlankLine,
            Fault::InsertNoise(Noise::Comments),
            Fault::InsertNoise(Noise::Pings),
            Fault::InsertNoise(Noise::UnknownEvents),
            Fault::InsertNoise(Noise::BlankLines),
            Fault::LineEnds(LineEnd::Lf),
            Fault::LineEnds(LineEnd::CrLf),
            Fault::LineEnds(LineEnd::Cr),
            Fault::FixedSizeChunks(1),
            Fault::FixedSizeChunks(7),
            Fault::RandomSizeChunks { seed: 1, max_len: 50 },
        ];
        for mishap in &mishaps {
            check_text(Answer::reply("Hi you").with_fault(mishap.clone()), "Hi you").await;
        }
        // And with all faults that can be combined.
        let all = mishaps.iter().filter(|mishap| !matches!(mishap, Fault::LineEnds(_)));
        let answer =
            all.fold(Answer::reply("Hi you"), |answer, mishap| answer.with_fault(mishap.clone()));
        check_text(answer.with_fault(Fault::LineEnds(LineEnd::CrLf)), "Hi you").await;
    }

    #[tokio::test(start_paused = true)]
    async fn slow_responses_follow_the_tokio_clock() {
        let slow = || Answer::reply("Hi").with_fault(Fault::DelayPerChunk(Duration::from_hours(1)));
        let began = tokio::time::Instant::now();
        check_text(slow().with_fault(Fault::FixedSizeChunks(200)), "Hi").await;
        let pieces = |wire| Answer::reply("Hi").to_bytes(wire).len() / 200;
        let hours = u32::try_from(pieces(Wire::Anthropic)).unwrap();
        assert!(began.elapsed() >= hours * Duration::from_hours(1));
    }

    #[tokio::test]
    async fn an_unrequested_compressed_body_is_an_error() {
        for (wire, turn) in
            turns_on_every_wire(Answer::reply("Hi").with_fault(Fault::Gzip), NO_TIMEOUT).await
        {
            assert!(turn.is_err(), "{wire}");
        }
    }

    #[tokio::test]
    async fn a_server_wide_fault_applies_to_every_response() {
        let server =
            ModelServer::start(|_| "Hi").await.unwrap().with_fault(Fault::NoTerminalMarker);
        for (wire, model) in all_providers(&server, NO_TIMEOUT) {
            let error = model.stream_turn(request()).into_turn().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IncompleteTurn, "{wire}");
        }
    }

    #[tokio::test]
    async fn error_responses_have_their_kind_and_retry_delay() {
        for (status, kind) in [
            (400, ErrorKind::InvalidRequest),
            (401, ErrorKind::Auth),
            (402, ErrorKind::Billing),
            (403, ErrorKind::Auth),
            (404, ErrorKind::InvalidRequest),
            (408, ErrorKind::Timeout),
            (429, ErrorKind::RateLimited),
            (500, ErrorKind::Server),
            (503, ErrorKind::Overloaded),
            (529, ErrorKind::Overloaded),
        ] {
            for error in check_error(Answer::error(status), kind).await {
                assert_eq!(error.status(), Some(status));
            }
        }
        for (name, value, wait) in [("retry-after", "2", 2000), ("retry-after-ms", "1500", 1500)] {
            let answer = Answer::error(429).with_header(name, value);
            for error in check_error(answer, ErrorKind::RateLimited).await {
                assert_eq!(error.retry_after(), Some(Duration::from_millis(wait)));
            }
        }
        let full = Error::new(ErrorKind::ContextWindow, "9 tokens > 8");
        check_error(full.into(), ErrorKind::ContextWindow).await;
        check_error(Answer::html_page(502), ErrorKind::Server).await;
        check_error(Answer::html_page(200), ErrorKind::Protocol).await;
        check_error(Answer::error(429).with_status(200), ErrorKind::RateLimited).await;
        for (wire, turn) in
            turns_on_every_wire(Answer::raw("application/json", "{}"), NO_TIMEOUT).await
        {
            // Of several lines, one may be a complete document.
            let is_line = wire == Wire::Ollama;
            let kind = if is_line { ErrorKind::IncompleteTurn } else { ErrorKind::Protocol };
            assert_eq!(turn.unwrap_err().kind(), kind, "{wire}");
        }
        // A refusal can be truncated like any other response.
        let cut = Answer::error(429).with_fault(Fault::Cut(FaultPosition::Bytes(5)));
        check_error(cut, ErrorKind::RateLimited).await;
    }

    #[tokio::test]
    async fn a_caller_that_retries_succeeds_after_a_series_of_faults() {
        let server = ModelServer::start(|asked| match asked.index {
            0 => Answer::error(529).with_header("retry-after", "1"),
            1 => Answer::reply("Let me see.").with_fault(Fault::Cut(FaultPosition::Bytes(300))),
            _ => Answer::reply("It is 3."),
        });
        let server = server.await.unwrap();
        let (_, model) = all_providers(&server, NO_TIMEOUT).remove(0);
        let mut kinds = Vec::new();
        let text = loop {
            match model.stream_turn(request()).into_turn().await {
                Ok(turn) => break turn.text(),
                Err(error) => kinds.push(error.kind()),
            }
        };
        assert_eq!(kinds, [ErrorKind::Overloaded, ErrorKind::IncompleteTurn]);
        assert_eq!(text, "It is 3.");
    }

    #[tokio::test]
    async fn requests_that_the_vendor_would_reject_never_reach_the_script() {
        let server =
            ModelServer::start(|_| -> Reply { panic!("the model is not called") }).await.unwrap();
        for (wire, model) in all_providers(&server, NO_TIMEOUT) {
            let mut request = request();
            let temperature = json!({ "temperature": 5 });
            let temperature = match wire {
                Wire::Gemini => json!({ "generationConfig": temperature }),
                _ => temperature,
            };
            let Value::Object(extra) = temperature else { unreachable!("it is an object") };
            request.options = Options { extra, ..Options::default() };
            let error = model.stream_turn(request).into_turn().await.unwrap_err();
            assert_eq!(
                (error.kind(), error.status()),
                (ErrorKind::InvalidRequest, Some(400)),
                "{wire}"
            );
        }
        assert_eq!(server.violations().len(), 5);
        assert!(server.violations().iter().all(|what| what.contains("temperature")));
    }
}
