//! The server side of Ollama's `/api/chat` endpoint, for use in tests,
//! <https://docs.ollama.com/api/chat>.

use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::item::StopReason;
use crate::provider::content_delta::ContentDelta;
use crate::provider::server::{
    BufferedCall, CREATED_AT_DATE, FrameFormat, FrameRole, ServerFrame, ServerWire, TurnStart,
    TurnWriter, UnsupportedContent, WriterOutput, default_status, message_with_phrase,
};
use crate::usage::Usage;

pub(crate) const SERVER_WIRE: ServerWire = ServerWire {
    // "stream: (default: true)"
    wants_stream: |body| body["stream"] != Value::Bool(false),
    format: |_| FrameFormat::JSON_LINES,
    status: |kind| match kind {
        // The error body contains no code that distinguishes this error from too many requests.
        ErrorKind::Billing => 402,
        kind => default_status(kind),
    },
    ..ServerWire::new(
        super::PROVIDER_NAME,
        "/api/chat",
        LineWriter::start,
        |error, _| json!({ "error": message_with_phrase(error, error_phrase(error.kind())) }),
    )
};

struct LineWriter {
    out: WriterOutput,
    model: String,
    open_call: BufferedCall,
}

impl LineWriter {
    fn start(opening: &TurnStart<'_>) -> Box<dyn TurnWriter> {
        Box::new(Self {
            out: WriterOutput::default(),
            model: opening.model.to_owned(),
            open_call: BufferedCall::default(),
        })
    }

    /// Writes a line whose message has the field `field` with the value `value`.
    fn write_message_field(&mut self, field: &str, value: Value) {
        let mut line = self.line_json(false);
        line["message"][field] = value;
        self.out.frames.push(ServerFrame::from_event(None, &line));
    }

    fn line_json(&self, done: bool) -> Value {
        json!({
            "model": self.model,
            "created_at": CREATED_AT_DATE,
            "message": { "role": "assistant", "content": "" },
            "done": done,
        })
    }
}

impl TurnWriter for LineWriter {
    fn output(&mut self) -> &mut WriterOutput {
        &mut self.out
    }

    fn write(&mut self, _index: u32, delta: ContentDelta) -> Result<(), UnsupportedContent> {
        match delta {
            ContentDelta::Text(piece) => self.write_message_field("content", piece.into()),
            ContentDelta::Reasoning(_, piece) => self.write_message_field("thinking", piece.into()),
            ContentDelta::Refusal(_) => return Err("a refusal"),
            ContentDelta::Signature(..) => return Err("a signature"),
            ContentDelta::HiddenReasoning(_) => return Err("hidden reasoning"),
            ContentDelta::CallStart { call_id, name } => {
                let mut call = json!({ "function": { "name": name } });
                // Older servers do not assign ids to calls.
                if !call_id.is_empty() {
                    call["id"] = call_id.into();
                }
                self.open_call.start(call);
            }
            ContentDelta::CallArgs(piece) => self.open_call.push(&piece),
            ContentDelta::CallEnd => {
                if let Some((mut call, arguments)) = self.open_call.end()? {
                    call["function"]["arguments"] = arguments;
                    self.write_message_field("tool_calls", json!([call]));
                }
            }
        }
        Ok(())
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), UnsupportedContent> {
        self.open_call.check_ended()?;
        let mut line = self.line_json(true);
        line["done_reason"] = match reason {
            // The API has no separate stop reason for tool calls.
            StopReason::Stop | StopReason::ToolCalls => "stop",
            StopReason::MaxTokens => "length",
            StopReason::Other(raw) => raw,
            StopReason::Refusal => return Err("a refusal"),
            StopReason::Pause => return Err("a pause"),
            StopReason::ContentFilter => return Err("a content filter"),
            StopReason::ContextWindow => return Err("the end of the context window"),
        }
        .into();
        // Zero counts and durations are omitted.
        for (name, tokens) in [
            ("prompt_eval_count", usage.input_tokens),
            ("prompt_eval_cached_count", usage.cache_read_input_tokens),
            ("eval_count", usage.output_tokens),
        ] {
            if tokens > 0 {
                line[name] = tokens.into();
            }
        }
        let data = line.to_string();
        self.out.frames.push(ServerFrame { event: None, data, role: FrameRole::Terminal });
        Ok(())
    }
}

/// Returns the phrase in an error's message by which clients recognize the kind of the error. The
/// body of an error response contains only the message.
fn error_phrase(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ContextWindow => "exceeded max context length",
        ErrorKind::Overloaded => "server busy",
        ErrorKind::RateLimited => "too many requests",
        ErrorKind::Timeout => "request timed out",
        _ => "",
    }
}
