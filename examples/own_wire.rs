//! A provider with a wire that is implemented outside of the crate, and an agent with a tool that
//! uses it. The vendor, Quillworks, is fictional: a server on the loopback device answers in its
//! place. `cargo run --example own_wire`

use serde_json::{Value, json};
use turnstream::framing::{Frame, FrameReader};
use turnstream::item::{Content, ItemKind, StopReason};
use turnstream::provider::{Decode, Destination, EncodedRequest, FrameOutcome, HttpProvider, Wire};
use turnstream::request::unsupported_error;
use turnstream::tool::{Tool, ToolSpec};
use turnstream::turn::TurnBuilder;
use turnstream::{Agent, Error, Request};
use turnstream_testing::http::{HttpRequest, HttpResponse, LoopbackServer};

const PROVIDER_NAME: &str = "quillworks";

#[derive(Clone, Debug, Default)]
pub(crate) struct QuillworksWire;

impl Wire for QuillworksWire {
    type Framing = FrameReader;
    type Decoder = QuillworksDecoder;

    fn name(&self) -> &str {
        PROVIDER_NAME
    }

    fn path(&self, _model: &str) -> &'static str {
        "/talk"
    }

    /// A request is a list of lines, each with its role: `["user", "Hello"]`.
    fn encode(&self, request: &Request, to: Destination<'_>) -> Result<EncodedRequest, Error> {
        // Anything that the wire cannot express is an error: here all options, images and files.
        request.options.ensure_only_supported(PROVIDER_NAME, &[])?;
        let text = |content: &Content| match content {
            Content::Text(text) => Ok(text.to_string()),
            Content::Parts(_) => Err(unsupported_error(PROVIDER_NAME, "content")),
        };
        let mut lines = vec![json!(["director", request.system.stable, request.system.volatile])];
        // In a settled history each call has its result. A tombstoned item is never sent.
        for item in request.context.settled().iter().filter(|item| !item.tombstone) {
            lines.push(match &item.kind {
                ItemKind::System { text } => json!(["director", text]),
                ItemKind::User { content } => json!(["user", text(content)?]),
                ItemKind::Text { text } => json!(["engine", text]),
                ItemKind::ToolCall(c) => {
                    json!(["call", c.call_id, c.name, c.arguments_or_empty_object()])
                }
                ItemKind::ToolResult(r) => json!(["result", r.call_id, text(&r.content)?]),
                _ => continue, // Reasoning, and items of other vendors.
            });
        }
        let body = json!({ "engine": to.model, "tools": &*request.tools, "lines": lines });
        EncodedRequest::from_json(&body, &request.options.extra)
    }

    fn decoder(&self, _request: &Request, to: Destination<'_>) -> QuillworksDecoder {
        QuillworksDecoder { model: to.model.to_owned(), call_count: 0 }
    }
}

pub(crate) struct QuillworksDecoder {
    model: String,
    call_count: u32,
}

/// A response is a list of events; an event's type determines the shape of its data.
impl Decode for QuillworksDecoder {
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        turn.set_provider(PROVIDER_NAME);
        turn.set_model(&self.model);
        match frame.event {
            "say" => turn.push_text(self.call_count, &frame.json::<String>()?), // After a call, a new text item.
            "call" => {
                let [id, name, arguments] = frame.json::<[String; 3]>()?;
                turn.start_tool_call(self.call_count, &id, &name);
                turn.push_tool_call_args(self.call_count, &arguments);
                turn.end_tool_call(self.call_count);
                self.call_count += 1;
            }
            "over" => {
                let word: String = frame.json()?;
                let reason = match &*word {
                    "done" => StopReason::Stop,
                    "your turn" => StopReason::ToolCalls,
                    other => StopReason::Other(other.to_owned()),
                };
                turn.stop(reason, &word);
                return Ok(FrameOutcome::Done);
            }
            _ => {} // A later version of the wire may send other events.
        }
        Ok(FrameOutcome::Continue)
    }
}

fn scripted_response(request: &HttpRequest) -> HttpResponse {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let [event, data, word] = match body["lines"].as_array().and_then(|lines| lines.last()) {
        Some(line) if line[0] == "result" => ["say", &line[2].to_string(), "done"],
        _ => ["call", r#"["c1","length","{\"text\":\"turnstream\"}"]"#, "your turn"],
    };
    let stream = format!("event: {event}\ndata: {data}\n\nevent: over\ndata: \"{word}\"\n\n");
    HttpResponse::text(200, stream)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("Quillworks is made up and its replies are scripted; the wire and the tool are real.");
    let server = LoopbackServer::start(|request| scripted_response(&request)).await?;
    let model = HttpProvider::<QuillworksWire>::new("quill-1").with_base_url(server.url())?;
    let spec = ToolSpec::new(
        "length",
        "Returns the length of a text in bytes",
        json!({ "type": "object", "properties": { "text": { "type": "string" } } }),
    );
    let length = |args: Value, _cx| async move { args["text"].as_str().map_or(0, str::len) };
    let agent = Agent::new(model).with_tools([Tool::raw(spec, length)?]);
    let outcome = agent.run("How many bytes does `turnstream` have?").outcome().await;
    println!("{}: quill-1 says {}, after {} turns", outcome.reason, outcome.text, outcome.turns);
    Ok(())
}
