//! The output of a model on one wire is sent to a model on any other: the request is valid, has the
//! text and the calls, and has nothing that only the first model understands.

use bytes::Bytes;
use futures::executor::block_on;
use futures::stream;
use serde_json::{Value, json};
use turnstream::item::{MediaSource, Part, ResultKind, ToolCall, ToolResult};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{Reply, anthropic, gemini, ollama, openai_chat, openai_responses};
use turnstream::stream::TurnStreamExt;
use turnstream::tool::ToolSpec;
use turnstream::turn::{PartialTurn, Turn};
use turnstream::{Error, History, Item, Request};
use turnstream_testing::{Answer, Wire, lint};

use turnstream_test_support::wires::{decode_in_dialect, encode_and_lint};

const MODEL: &str = "gemini-3-pro";

fn decode_turn(wire: Wire, body: Vec<u8>, after: &History) -> Result<Turn, Error> {
    let body = stream::iter([Ok(Bytes::from(body))]);
    let turn = decode_in_dialect(&Dialect::OPENROUTER, wire, MODEL, after, body);
    block_on(turn.into_turn()).map(|turn| (*turn).clone())
}

/// The encoding of a history on a wire, and the vendor's objections to it.
fn encode_with_violations(wire: Wire, items: &[Item], model: &str) -> (Value, Vec<String>) {
    let spec = |name: &str| ToolSpec::new(name, "d", json!({ "type": "object", "properties": {} }));
    let request = Request::new(History::from_items("h", items.to_vec()));
    let request = request.with_tools([spec("look"), spec("count")]);
    let bytes = match wire {
        Wire::Anthropic => anthropic::encode(&request, model),
        Wire::OpenAiChat => openai_chat::encode(&request, model, &Dialect::OPENROUTER),
        Wire::OpenAiResponses => openai_responses::encode(&request, model),
        Wire::Ollama => ollama::encode(&request, model, &ollama::Chat::default()),
        _ => gemini::encode(&request, model),
    };
    let body: Value = serde_json::from_slice(&bytes.unwrap()).unwrap();
    let complaints = lint::request(wire, model, &body);
    (body, complaints)
}

/// The turns of an agent, of which the last but one is truncated. Ollama's wire has no signatures
/// and no hidden reasoning.
fn agent_replies(wire: Wire) -> Vec<Reply> {
    let has_secrets = wire != Wire::Ollama;
    let thought = Reply::new().think("Thought one.");
    let signed = if has_secrets { thought.sign("U0VDUkVU") } else { thought };
    let signed = signed.say("Word-one.").call_raw("same", "look", "{\"x\":1}");
    let signed = signed.call_raw("other", "count", "{\"y\":[2]}");
    let hidden = if has_secrets { Reply::new().think_hidden("SElEREVO") } else { Reply::new() };
    let hidden = hidden.say("Word-two.").call_raw("same", "look", "{\"x\":2}");
    let cut = Reply::new().think("Thought three.").say("Word-three.");
    let cut = cut.call_unfinished("half", "look", "{\"x\"").disconnect();
    let last = Reply::new().summarize("Thought four.").say("Word-four.");
    let last = if wire == Wire::Gemini { last.sign("U0lHTkVE") } else { last };
    vec![signed, hidden, cut, last]
}

/// A wire-specific block, part or item, as it appears in a stream.
fn own_block_body(wire: Wire) -> Option<Vec<u8>> {
    let frame = |data: &[&str]| -> Option<Vec<u8>> {
        Some(data.iter().flat_map(|data| ["data: ", data, "\n\n"]).collect::<String>().into())
    };
    match wire {
        Wire::Anthropic => frame(&[
            r#"{"type":"message_start","message":{"id":"msg_own"}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"SRVTOOL","name":"web_search","input":{}}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"SRVTOOL","content":[]}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"Word-own."}}"#,
            r#"{"type":"content_block_stop","index":2}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
            r#"{"type":"message_stop"}"#,
        ]),
        Wire::OpenAiResponses => frame(&[
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_own","summary":[],"encrypted_content":"SElEREVO"}}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"web_search_call","id":"SRVTOOL","status":"completed"}}"#,
            r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"message","id":"msg_own","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Word-own.","annotations":[]}]}}"#,
            r#"{"type":"response.completed","response":{"status":"completed"}}"#,
        ]),
        Wire::Gemini => frame(&[
            r#"{"candidates":[{"content":{"parts":[{"executableCode":{"language":"PYTHON","code":"SRVTOOL"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}},{"text":"Word-own."}]},"finishReason":"STOP"}]}"#,
        ]),
        _ => None,
    }
}

/// The history of an agent on a wire, as the wire's decoder produces it.
fn agent_history(wire: Wire) -> Vec<Item> {
    let mut items = vec![Item::user("Begin.")];
    // Each response has ids of its own, like a server's.
    let answered = |(n, reply): (usize, Reply)| {
        let body = String::from_utf8(Answer::reply(reply).to_bytes(wire)).unwrap();
        body.replace("_0000", &format!("_{n:04}")).into_bytes()
    };
    let bodies = agent_replies(wire).into_iter().enumerate().map(answered);
    for body in bodies.chain(own_block_body(wire)) {
        let after = History::from_items("h", items.clone());
        match decode_turn(wire, body, &after) {
            Ok(turn) => {
                items.extend(turn.to_history_items());
                for call in turn.tool_calls() {
                    let image = vec![
                        Part::from("Result."),
                        Part::image("image/png", MediaSource::Data("iVBORw0KGgo=".into())),
                    ];
                    items.push(Item::tool_result(ToolResult::for_call(
                        call,
                        ResultKind::Ok,
                        image,
                    )));
                }
                if turn.calls().is_empty() {
                    items.push(Item::user("Go on."));
                }
            }
            Err(error) => {
                items.extend(
                    error.find_source::<PartialTurn>().expect("something had come").items(),
                );
                items.push(Item::user("Once more."));
            }
        }
    }
    items
}

#[test]
fn a_history_of_any_wire_is_sent_on_every_wire_without_foreign_data() {
    for from in Wire::ALL {
        let items = agent_history(from);
        for to in Wire::ALL {
            for model in [MODEL, "another-model"] {
                let (body, complaints) = encode_with_violations(to, &items, model);
                assert_eq!(complaints, Vec::<String>::new(), "{from} to {to}: {body}");
                let text = body.to_string();
                for words in ["Word-one.", "Word-two.", "Word-four.", "Result.", "iVBORw0KGgo="] {
                    assert!(text.contains(words), "{words} of {from} to {to}: {body}");
                }
                assert!(text.contains("Word-three."), "{from} to {to}: {body}");
                let own = own_block_body(from).is_some();
                assert_eq!(text.contains("Word-own."), own, "{from} to {to}: {body}");
                assert!(text.matches("\"count\"").count() >= 2, "{from} to {to}: {body}");
                assert!(!text.contains("half"), "{from} to {to}: {body}");
                if (from, MODEL) == (to, model) {
                    assert_eq!(text.contains("SRVTOOL"), own, "{from} to itself: {body}");
                    continue;
                }
                for foreign in ["U0VDUkVU", "SElEREVO", "U0lHTkVE", "SRVTOOL", "msg_own", "rs_own"]
                {
                    assert!(!text.contains(foreign), "{foreign} of {from} to {to}: {body}");
                }
            }
        }
    }
}

#[cfg(feature = "http")]
mod in_a_run {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use turnstream::Agent;
    use turnstream::http::HttpClient;
    use turnstream::provider::{
        Anthropic, Fallback, Gemini, Ollama, OpenAiChat, OpenAiResponses, Provider,
    };
    use turnstream::tool::Tool;
    use turnstream_testing::ModelServer;

    use super::*;

    fn provider_at(wire: Wire, url: &str, name: &str) -> Arc<dyn Provider> {
        let http = HttpClient::without_proxy;
        match wire {
            Wire::Anthropic => {
                Arc::new(Anthropic::new(name).with_base_url(url).unwrap().with_http_client(http()))
            }
            Wire::OpenAiChat => {
                Arc::new(OpenAiChat::new(name).with_base_url(url).unwrap().with_http_client(http()))
            }
            Wire::OpenAiResponses => Arc::new(
                OpenAiResponses::new(name).with_base_url(url).unwrap().with_http_client(http()),
            ),
            Wire::Ollama => {
                Arc::new(Ollama::new(name).with_base_url(url).unwrap().with_http_client(http()))
            }
            _ => Arc::new(Gemini::new(name).with_base_url(url).unwrap().with_http_client(http())),
        }
    }

    #[tokio::test]
    async fn a_run_started_on_one_wire_can_finish_on_another() {
        for from in Wire::ALL {
            for to in Wire::ALL {
                let asked = AtomicUsize::new(0);
                let first =
                    ModelServer::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
                        0 => {
                            Answer::reply(Reply::new().think("Hm.").call("look", json!({ "x": 1 })))
                        }
                        1 => Answer::reply(
                            Reply::text("So.")
                                .call("look", json!({ "x": 2 }))
                                .call("look", json!({})),
                        ),
                        _ => Answer::error(503),
                    });
                let first = first.await.unwrap();
                let asked = AtomicUsize::new(0);
                let second =
                    ModelServer::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
                        0 => Answer::reply(
                            Reply::text("I take over.").call("look", json!({ "x": 3 })),
                        ),
                        _ => Answer::reply("Done."),
                    });
                let second = second.await.unwrap();
                let look = Tool::raw(
                    ToolSpec::new("look", "Looks", json!({ "type": "object", "properties": {} })),
                    |_, _| async { "seen" },
                );
                let models = Fallback::new(provider_at(from, &first.url(), "gemini-3-one"))
                    .or(provider_at(to, &second.url(), "gemini-3-two"));
                let outcome =
                    Agent::new(models).with_tools([look.unwrap()]).run("Go.").outcome().await;
                assert_eq!(outcome.text, "Done.", "{from} to {to}: {outcome:?}");
                let body = second.requests().pop().unwrap().to_string();
                assert_eq!(body.matches("seen").count(), 4, "{from} to {to}: {body}");
                assert_eq!(first.violations(), Vec::<String>::new(), "{from}");
                assert_eq!(second.violations(), Vec::<String>::new(), "{from} to {to}");
            }
        }
    }
}

#[test]
fn a_call_id_valid_for_the_vendor_is_sent_unchanged() {
    // As long as xAI's ids, and as Anthropic's and OpenAI's may be.
    for (wire, longest) in
        [(Wire::Anthropic, 64), (Wire::OpenAiResponses, 64), (Wire::OpenAiChat, 40)]
    {
        for length in [1, 40, 43, 64, 65, 200] {
            let id = format!("call-{}", "a_1".repeat(70))[..length].to_owned();
            let called = ToolCall { call_id: id.clone(), name: "f".into(), arguments: "{}".into() };
            let result = ToolResult::for_call(&called, ResultKind::Ok, "r");
            let items =
                [Item::user("x"), Item::tool_call(&id, "f", "{}"), Item::tool_result(result)];
            let body = encode_and_lint(wire, &History::from_items("h", items)).to_string();
            let issued = body.matches(&format!("\"{id}\"")).count();
            assert_eq!(issued, if length <= longest { 2 } else { 0 }, "{wire:?}, {length}: {body}");
        }
    }
}
