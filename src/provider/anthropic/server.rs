//! Anthropic Messages as a server speaks them,
//! <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.

use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::item::StopReason;
use crate::provider::content_delta::{ContentDelta, Signed};
use crate::provider::server::{
    Frame, Opening, Output, Role, ServerWire, TurnWriter, Unsupported, call_id, message,
    usual_status,
};
use crate::usage::Usage;

pub(crate) const SERVER: ServerWire = ServerWire {
    ping: |_| Some(Frame::event(Some("ping"), &json!({ "type": "ping" }))),
    error_frame: |body, _| Frame::event(Some("error"), body),
    status: |kind| match kind {
        ErrorKind::Billing => 402,
        ErrorKind::Overloaded => 529,
        kind => usual_status(kind),
    },
    request_id: Some("request-id"),
    ..ServerWire::new("anthropic", "/messages", Writer::begin, |error, status| {
        let message = message(error, "prompt is too long");
        let kind = error_type(error.kind(), status);
        json!({ "type": "error", "error": { "type": kind, "message": message } })
    })
};

struct Writer {
    out: Output,
    id: String,
    sign: fn(&str) -> Option<String>,
    open: Option<(u32, Open)>,
    /// Whether the ping that follows the first start of a block was sent.
    pinged: bool,
}

/// The block that is open.
enum Open {
    Text,
    /// With its text and its own signature.
    Thinking(String, Option<String>),
    Call,
}

impl Writer {
    fn begin(opening: &Opening<'_>) -> Box<dyn TurnWriter> {
        let usage = opening.usage;
        let mut writer = Self {
            out: Output::default(),
            id: opening.id.to_owned(),
            sign: opening.sign,
            open: None,
            pinged: false,
        };
        writer.event(&json!({ "type": "message_start", "message": {
            "id": format!("msg_{}", opening.id),
            "type": "message",
            "role": "assistant",
            "model": opening.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            // The answer has just begun.
            "usage": counted(Usage { output_tokens: usage.output_tokens.min(1), ..usage }),
        } }));
        Box::new(writer)
    }

    /// Opens a block unless it is open.
    fn open(&mut self, index: u32, open: Open, block: &Value) {
        let same = match (&self.open, &open) {
            (Some((at, Open::Text)), Open::Text)
            | (Some((at, Open::Thinking(..))), Open::Thinking(..)) => *at == index,
            _ => false,
        };
        if same {
            return;
        }
        self.close();
        self.open = Some((index, open));
        self.event(
            &json!({ "type": "content_block_start", "index": index, "content_block": block }),
        );
        // As the vendor does after the first start.
        if !std::mem::replace(&mut self.pinged, true) {
            self.event(&json!({ "type": "ping" }));
        }
    }

    fn close(&mut self) {
        let Some((index, open)) = self.open.take() else { return };
        match open {
            Open::Thinking(text, own) => {
                if let Some(signature) = own.or_else(|| (self.sign)(&text)) {
                    self.out.sign(&signature, &text);
                    let delta = json!({ "type": "signature_delta", "signature": signature });
                    self.delta(index, &delta);
                }
            }
            Open::Text | Open::Call => {}
        }
        self.event(&json!({ "type": "content_block_stop", "index": index }));
    }

    fn delta(&mut self, index: u32, delta: &Value) {
        self.event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    }

    fn event(&mut self, event: &Value) {
        let name = event["type"].as_str().unwrap_or_default().to_owned();
        let role = match &*name {
            "message_delta" => Role::Terminal,
            "message_stop" => Role::LastWord,
            _ => Role::Event,
        };
        self.out.frames.push(Frame { event: Some(name.into()), data: event.to_string(), role });
    }
}

impl TurnWriter for Writer {
    fn output(&mut self) -> &mut Output {
        &mut self.out
    }

    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), Unsupported> {
        match delta {
            ContentDelta::Text(piece) | ContentDelta::Refusal(piece) => {
                self.open(index, Open::Text, &json!({ "type": "text", "text": "" }));
                self.delta(index, &json!({ "type": "text_delta", "text": piece }));
            }
            ContentDelta::Reasoning(_, piece) => {
                let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                self.open(index, Open::Thinking(String::new(), None), &block);
                if let Some((_, Open::Thinking(text, _))) = &mut self.open {
                    text.push_str(&piece);
                }
                self.delta(index, &json!({ "type": "thinking_delta", "thinking": piece }));
            }
            ContentDelta::Sign(Signed::Reasoning, signature) => {
                if let Some((_, Open::Thinking(_, own))) = &mut self.open {
                    *own = Some(signature);
                }
            }
            ContentDelta::Sign(..) => return Err("a signature of text or of a call"),
            ContentDelta::Hidden(data) => {
                self.out.sign(&data, "");
                let block = json!({ "type": "redacted_thinking", "data": data });
                self.open(index, Open::Call, &block);
                self.close();
            }
            ContentDelta::CallStart { call_id: id, name } => {
                let id = call_id("toolu", id, &self.id, index);
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.open(index, Open::Call, &block);
                self.delta(index, &json!({ "type": "input_json_delta", "partial_json": "" }));
            }
            ContentDelta::CallArgs(piece) => {
                self.delta(index, &json!({ "type": "input_json_delta", "partial_json": piece }));
            }
            ContentDelta::CallEnd => self.close(),
        }
        Ok(())
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), Unsupported> {
        // A call that was not written to its end has no end on the wire either.
        if !matches!(self.open, Some((_, Open::Call))) {
            self.close();
        }
        let reason = match reason {
            StopReason::Stop => "end_turn",
            StopReason::ToolCalls => "tool_use",
            StopReason::MaxTokens => "max_tokens",
            StopReason::ContentFilter => "sensitive",
            StopReason::Refusal => "refusal",
            StopReason::Pause => "pause_turn",
            StopReason::ContextWindow => "model_context_window_exceeded",
            StopReason::Other(raw) => raw,
        };
        let mut counted = counted(usage);
        counted["output_tokens_details"] = json!({ "thinking_tokens": usage.reasoning_tokens });
        let delta = json!({ "stop_reason": reason, "stop_sequence": null });
        self.event(&json!({ "type": "message_delta", "delta": delta, "usage": counted }));
        self.event(&json!({ "type": "message_stop" }));
        Ok(())
    }
}

/// `input_tokens` are those that no cache had to do with.
fn counted(usage: Usage) -> Value {
    let cached = usage.cache_read_input_tokens + usage.cache_write_input_tokens;
    json!({
        "input_tokens": usage.input_tokens.saturating_sub(cached),
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation_input_tokens": usage.cache_write_input_tokens,
        "output_tokens": usage.output_tokens,
    })
}

/// <https://docs.anthropic.com/en/api/errors>
fn error_type(kind: ErrorKind, status: u16) -> &'static str {
    match (kind, status) {
        (_, 404) => "not_found_error",
        (_, 413) => "request_too_large",
        (_, 403) => "permission_error",
        (ErrorKind::Auth, _) => "authentication_error",
        (ErrorKind::Billing, _) => "billing_error",
        (ErrorKind::RateLimited, _) => "rate_limit_error",
        (ErrorKind::Overloaded, _) => "overloaded_error",
        (ErrorKind::Timeout, _) => "timeout_error",
        (kind, _) if usual_status(kind) == 400 => "invalid_request_error",
        _ => "api_error",
    }
}
