//! Equal runs send equal bytes, and each request begins with the bytes of the previous one.

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::env::CountingIds;
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{Reply, Scripted, anthropic, openai_chat};
use turnstream::request::ToolSpec;
#[cfg(feature = "schemars")]
use turnstream::tool::Tool;
use turnstream::{Agent, History, Item, Request};
use turnstream_testing::Wire;

use turnstream_test_support::wires;

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
async fn equal_scripts_and_ids_give_equal_bytes() {
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
fn a_schema_is_sent_with_its_fields_in_the_order_in_which_they_are_declared() {
    let properties = r#""properties":{"zebra":{"type":"string"},"apple":{"type":"integer"}},"#;
    let schema = format!(r#"{{"type":"object",{properties}"required":["zebra","apple"]}}"#);
    encode_tool_on_every_wire(&serde_json::from_str(&schema).unwrap(), |wire, body| {
        assert!(body.contains(&schema), "{wire:?}: {body}");
    });
}

#[cfg(feature = "schemars")]
#[test]
fn a_derived_schema_is_sent_with_its_fields_in_the_order_in_which_they_are_declared() {
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
async fn each_request_extends_the_previous_one() {
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
