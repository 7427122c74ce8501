//! Laws that need no grid, or a grid of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use turnstream::agent::Limits;
use turnstream::env::CountingIds;
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{Provider, Reply, Scripted, anthropic, openai_chat};
use turnstream::request::ToolSpec;
use turnstream::stream::{TurnStream, TurnStreamExt};
#[cfg(feature = "schemars")]
use turnstream::tool::Tool;
use turnstream::turn::{TurnBuilder, TurnEvent};
use turnstream::{Agent, Error, History, Item, Request, Usage};
use turnstream_testing::Wire;

use turnstream_test_support::runs::{collect_rest, final_outcome};
use turnstream_test_support::wires;

/// Counts the items that are read from upstream.
struct EndlessProvider(Arc<AtomicUsize>);

impl Provider for EndlessProvider {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let read = self.0.clone();
        let words = stream::repeat_with(move || {
            read.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>(TurnEvent::TextDelta { index: 0, text: "word ".into() })
        });
        words.seal(&request.history)
    }

    fn model(&self) -> &'static str {
        "endless"
    }
}

#[tokio::test]
async fn law_1_bytes_are_read_only_when_polled() {
    let read = Arc::new(AtomicUsize::new(0));
    let mut run = Agent::new(EndlessProvider(read.clone())).run("go");
    for pulled in 1..=1000 {
        run.next().await.unwrap().unwrap();
        assert!(read.load(Ordering::Relaxed) <= pulled, "read ahead at {pulled}");
    }
    assert!(read.load(Ordering::Relaxed) >= 990);
}

#[test]
fn law_1_the_core_spawns_and_queues_nothing() {
    let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = 0;
    let mut folders = vec![src.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !["task", "hub"].iter().any(|door| path == src.join(door)) {
                    folders.push(path);
                }
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            if path.ends_with("tests.rs") {
                // Only tests are compiled from it.
                continue;
            }
            files += 1;
            if path == src.join("store_thread.rs") {
                // The thread that reads and writes files, through which no event passes.
                continue;
            }
            if path == src.join("durable/publisher.rs") {
                // The channel to a hub, which holds at most one event that the hub has not
                // received, and the progress of calls that run in other processes.
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            for word in ["spawn(", "spawn_local", "mpsc", "broadcast", "watch::", "JoinSet"] {
                assert!(!source.contains(word), "{word} in {}", path.display());
            }
        }
    }
    assert!(files > 40);
}

fn scripted_model() -> Scripted {
    Scripted::new([
        Reply::new().think("hm").say("two").call("a", json!({ "x": 1 })).call("b", json!({})),
        Reply::new().call("a", json!({ "x": 2 })),
        Reply::text("done"),
    ])
}

async fn event_lines_and_requests() -> (Vec<String>, Vec<Vec<u8>>) {
    let model = scripted_model();
    let agent = Agent::new(model.clone()).with_ids(CountingIds::new("id"));
    let events: Vec<_> = agent.run("go").collect().await;
    let lines = events.iter().map(|event| serde_json::to_string(event.as_ref().unwrap()).unwrap());
    let requests = model.requests();
    let encoded = requests.iter().map(|request| anthropic::encode(request, "m").unwrap());
    (lines.collect(), encoded.collect())
}

#[tokio::test]
async fn law_8_equal_scripts_and_ids_give_equal_bytes() {
    let (first, second) = (event_lines_and_requests().await, event_lines_and_requests().await);
    assert!(first.0.len() > 20 && first.1.len() == 3);
    assert_eq!(first, second);
}

/// The body that each wire sends for a tool with these parameters.
fn encode_tool_on_every_wire(parameters: &Value, sent: impl Fn(Wire, &str)) {
    let (name, description) = ("t".to_owned(), "d".to_owned());
    let mut request = Request::new(History::empty("h"));
    request.context.push(Item::user("go"));
    request.tools = [ToolSpec::new(name, description, parameters.clone())].into();
    for wire in Wire::ALL {
        let body = wires::encode_bytes(wire, "m", &request, &Dialect::OPENAI);
        sent(wire, str::from_utf8(&body).unwrap());
    }
}

#[test]
fn law_8_a_schema_is_sent_with_its_fields_in_the_order_in_which_they_are_declared() {
    let properties = r#""properties":{"zebra":{"type":"string"},"apple":{"type":"integer"}},"#;
    let schema = format!(r#"{{"type":"object",{properties}"required":["zebra","apple"]}}"#);
    encode_tool_on_every_wire(&serde_json::from_str(&schema).unwrap(), |wire, body| {
        assert!(body.contains(&schema), "{wire:?}: {body}");
    });
}

#[cfg(feature = "schemars")]
#[test]
fn law_8_a_derived_schema_is_sent_with_its_fields_in_the_order_in_which_they_are_declared() {
    /// Words for the model.
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Args {
        /// Striped.
        zebra: String,
        apple: bool,
    }
    let tool = Tool::new("t", "d", |_: Args, _| async { "" });
    let schema = concat!(
        r#"{"type":"object","properties":{"zebra":{"type":"string","description":"Striped."},"#,
        r#""apple":{"type":"boolean"}},"required":["zebra","apple"],"#,
        r#""description":"Words for the model."}"#,
    );
    assert_eq!(tool.spec().parameters.to_string(), schema);
    encode_tool_on_every_wire(&tool.spec().parameters.to_value(), |wire, body| {
        assert!(body.contains(schema), "{wire:?}: {body}");
    });
}

/// The content blocks of a body, in order, each with the role of its message. Cache marks are
/// ignored.
fn content_blocks(body: &[u8]) -> Vec<(Value, Value)> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let mut blocks = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        let rest = |message: &Value| {
            let mut rest = message.clone();
            rest["content"] = Value::Null;
            rest
        };
        match &message["content"] {
            Value::Array(parts) => {
                let unmarked = |part: &Value| {
                    let mut part = part.clone();
                    part.as_object_mut().map(|fields| fields.shift_remove("cache_control"));
                    part
                };
                blocks.extend(parts.iter().map(|part| (message["role"].clone(), unmarked(part))));
            }
            text => blocks.push((rest(message), text.clone())),
        }
    }
    blocks
}

#[tokio::test]
async fn law_9_each_request_extends_the_previous_one() {
    let model = scripted_model();
    Agent::new(model.clone()).with_system("be brief").run("go").outcome().await;
    let requests = model.requests();
    let wires: [fn(&Request) -> Vec<u8>; 2] = [
        |request| anthropic::encode(request, "m").unwrap(),
        |request| openai_chat::encode(request, "m", &Dialect::OPENAI).unwrap(),
    ];
    for encode in wires {
        let bodies: Vec<_> =
            requests.iter().map(|request| content_blocks(&encode(request))).collect();
        for pair in bodies.windows(2) {
            assert!(pair[1].len() > pair[0].len());
            assert_eq!(pair[1][..pair[0].len()], pair[0][..]);
        }
    }
}

#[tokio::test]
async fn law_5_usage_is_counted_exactly_once_even_if_retracted() {
    let usage = |input_tokens| Usage { input_tokens, output_tokens: 1, ..Usage::default() };
    let model = Scripted::new([
        // Cumulative within the attempt: 30 replaces 10.
        Reply::text("void")
            .usage(usage(10))
            .usage(usage(30))
            .retract("again")
            .call("a", json!({}))
            .usage(usage(200)),
        Reply::text("hal").usage(usage(4000)).disconnect(),
    ]);
    let limits = Limits { max_turn_retries: 0, ..Limits::default() };
    let mut run = Agent::new(model).with_limits(limits).run("go");
    let outcome = final_outcome(&collect_rest(&mut run).await).clone();
    assert_eq!((outcome.usage.input_tokens, outcome.usage.output_tokens), (4230, 3));
    assert_eq!(run.usage(), outcome.usage);
    assert_eq!((outcome.text.as_str(), outcome.turns), ("hal", 2));
}

#[test]
fn law_4_only_a_turn_builder_produces_runnable_calls() {
    let mut turn = TurnBuilder::new();
    turn.start_tool_call(0, "a", "t");
    turn.end_tool_call(0);
    turn.stop(turnstream::turn::StopReason::ToolCalls, "");
    turn.complete().unwrap();
    let Some(TurnEvent::TurnComplete { turn }) = std::iter::from_fn(|| turn.next_event()).last()
    else {
        panic!("no turn");
    };
    assert!(turn.calls().veto().is_none());
    let json = serde_json::to_string(&*turn).unwrap();
    let read: turnstream::Turn = serde_json::from_str(&json).unwrap();
    assert!(read.calls().veto().is_some());
    let forged = json.replacen('{', "{\"built\":true,", 1);
    let read: turnstream::Turn = serde_json::from_str(&forged).unwrap();
    assert!(read.calls().veto().is_some(), "no file can forge it");
}
