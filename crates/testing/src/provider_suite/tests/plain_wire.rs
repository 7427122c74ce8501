//! A minimal wire, and its faults.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};
use turnstream::error::{Error, ErrorKind};
use turnstream::framing::{Frame, Framing, NdJson};
use turnstream::item::{Item, ItemKind, StopReason};
use turnstream::provider::{
    Decode, Destination, EncodedRequest, ErrorResponse, FrameOutcome, Piece, Wire, error_in_stream,
};
use turnstream::request::Request;
use turnstream::turn::{ReasoningKind, TurnBuilder};
use turnstream::usage::Usage;

use super::broken_provider::Fault;

/// A wire of JSON lines, each an object with one field.
#[derive(Clone, Debug)]
pub(super) struct Plain<const LOSSY: bool>(pub(super) Fault);

/// Lines whose chunks are decoded as text one by one if `LOSSY` is set.
#[derive(Default)]
pub(super) struct Lines<const LOSSY: bool>(NdJson);

pub(super) struct Decoder {
    fault: Fault,
    calls: u32,
}

pub(super) fn write(pieces: &[Piece]) -> Vec<u8> {
    let line = |piece: &Piece| {
        let line = match piece {
            Piece::Text(text) => json!({ "text": text }),
            Piece::Reasoning(text) => json!({ "thought": text }),
            Piece::ToolCall { id, name, arguments } => json!({ "call": [id, name, arguments] }),
            Piece::Usage(usage) => json!({ "usage": [usage.input_tokens, usage.output_tokens] }),
            Piece::Stop(reason) => json!({ "stop": reason }),
            _ => unreachable!("the suite has no other pieces"),
        };
        format!("{line}\n")
    };
    pieces.iter().map(line).collect::<String>().into_bytes()
}

/// The number of encoded requests.
static ENCODED: AtomicUsize = AtomicUsize::new(0);

impl<const LOSSY: bool> Wire for Plain<LOSSY> {
    type Framing = Lines<LOSSY>;
    type Decoder = Decoder;

    fn name(&self) -> &'static str {
        "plain"
    }

    fn path(&self, _model: &str) -> &'static str {
        "/plain"
    }

    fn encode(&self, request: &Request, to: Destination<'_>) -> Result<EncodedRequest, Error> {
        let history = match self.0 {
            Fault::DoesNotSettle => request.context.clone(),
            _ => request.context.settled(),
        };
        let mut items: Vec<Value> = history.iter().map(item).collect();
        match self.0 {
            Fault::SendsTheLastItem => drop(items.drain(..items.len() - 1)),
            Fault::RewritesTheFirstItem => items[0]["of"] = json!(items.len()),
            _ => {}
        }
        let tools: Vec<_> = request.tools.iter().map(|tool| &tool.name).collect();
        let mut body = json!({ "model": to.model, "tools": tools, "items": items });
        if self.0 == Fault::NumbersItsRequests {
            body["number"] = json!(ENCODED.fetch_add(1, Ordering::Relaxed));
        }
        EncodedRequest::from_json(&body, &request.options.extra)
    }

    fn decoder(&self, _request: &Request, _to: Destination<'_>) -> Decoder {
        Decoder { fault: self.0, calls: 0 }
    }

    fn error_from_response(&self, refusal: &ErrorResponse<'_>) -> Error {
        match self.0 {
            Fault::HasOneError => Error::new(ErrorKind::Other, "it failed"),
            _ => refusal.to_error(),
        }
    }
}

fn item(item: &Item) -> Value {
    match &item.kind {
        ItemKind::User { content } => json!({ "user": content.text() }),
        ItemKind::ToolCall(call) => {
            json!({ "id": call.call_id, "name": call.name, "arguments": call.arguments })
        }
        ItemKind::ToolResult(result) => {
            json!({ "id": result.call_id, "result": result.content.text() })
        }
        _ => json!({ "text": item.as_text() }),
    }
}

impl<const LOSSY: bool> Framing for Lines<LOSSY> {
    const MEDIA_TYPE: &'static str = NdJson::MEDIA_TYPE;

    fn feed(&mut self, chunk: Bytes) {
        self.0.feed(match LOSSY {
            true => String::from_utf8_lossy(&chunk).into_owned().into(),
            false => chunk,
        });
    }

    fn next_frame(&mut self) -> Option<Result<Frame<'_>, Error>> {
        self.0.next_frame()
    }

    fn finish(&mut self) -> Option<Result<Frame<'_>, Error>> {
        self.0.finish()
    }

    fn detect_other_format(first: u8) -> Option<&'static str> {
        NdJson::detect_other_format(first)
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        let line: Value = frame.json()?;
        let Some((field, value)) = line.as_object().and_then(|line| line.iter().next()) else {
            return Ok(FrameOutcome::Continue);
        };
        let text = value.as_str().unwrap_or_default();
        match (field.as_str(), self.fault) {
            ("text", Fault::TrimsText) => turn.push_text(self.calls, text.trim_end()),
            ("text", _) | ("thought", Fault::SpeaksItsThoughts) => {
                turn.push_text(self.calls, text);
            }
            ("thought", _) => turn.push_reasoning(self.calls, text, ReasoningKind::Trace),
            ("call", Fault::LosesTheSecondCall) if self.calls > 0 => {}
            ("call", _) => self.call(value, turn),
            ("usage", Fault::CountsNothing) => {}
            ("usage", _) => turn.set_usage(Usage {
                input_tokens: value[0].as_u64().unwrap_or(0),
                output_tokens: value[1].as_u64().unwrap_or(0),
                ..Usage::default()
            }),
            ("stop", Fault::AlwaysStops) | ("error", Fault::CompletesWhatFails) => {
                turn.stop(StopReason::Stop, text);
                return Ok(FrameOutcome::Done);
            }
            ("stop", _) => {
                turn.stop(StopReason::Other(text.to_owned()), text);
                return Ok(FrameOutcome::Done);
            }
            ("error", _) => return Err(error_in_stream(&value.to_string())),
            _ => {}
        }
        Ok(FrameOutcome::Continue)
    }

    fn body_ended(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        if self.fault == Fault::CompletesWhatBreaksOff {
            turn.stop(StopReason::Stop, "");
        }
        Ok(())
    }
}

impl Decoder {
    fn call(&mut self, value: &Value, turn: &mut TurnBuilder) {
        let word = |at: usize| value[at].as_str().unwrap_or_default();
        let id = if self.fault == Fault::NamesItsCalls { "mine" } else { word(0) };
        turn.start_tool_call(self.calls, id, word(1));
        if self.fault != Fault::LosesArguments {
            turn.push_tool_call_args(self.calls, word(2));
        }
        turn.end_tool_call(self.calls);
        self.calls += 1;
    }
}
