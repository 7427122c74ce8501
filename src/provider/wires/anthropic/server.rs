//! The server side of the Anthropic Messages API,
//! <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.

use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::item::StopReason;
use crate::provider::codec::content_delta::{ContentDelta, SignatureTarget};
use crate::provider::server::{
    Frame, ServerWire, SignFn, TEXT_MARK, TextTemplate, TurnStart, UnsupportedContent, WireWriter,
    WriterOutput, call_id_or_generated, default_status, error_message,
};
use crate::usage::Usage;

pub(in crate::provider) const SERVER_WIRE: ServerWire = ServerWire {
    ping: |_| Some(Frame::new(Some("ping"), &json!({ "type": "ping" }))),
    error_frame: |body, _| Frame::new(Some("error"), body),
    status: |kind| match kind {
        ErrorKind::Billing => 402,
        ErrorKind::Overloaded => 529,
        kind => default_status(kind),
    },
    request_id_header: Some("request-id"),
    ..ServerWire::new("anthropic", MessageWriter::start, |error, status| {
        let phrases = [
            (ErrorKind::ContextWindow, "prompt is too long"),
            (ErrorKind::ReasoningRefused, "Invalid `signature` in `thinking` block"),
        ];
        let message = error_message(error, &phrases);
        let kind = error_type(error.kind(), status);
        json!({ "type": "error", "error": { "type": kind, "message": message } })
    })
};

struct MessageWriter {
    out: WriterOutput,
    id: String,
    sign: SignFn,
    open_block: Option<(u32, OpenBlock)>,
    /// Whether the `ping` event that follows the first `content_block_start` event has been sent.
    has_pinged: bool,
}

/// The kind of content block that is currently open.
enum OpenBlock {
    Text,
    /// The thinking text so far, and the block's signature, if the caller has written one.
    Thinking(String, Option<String>),
    Call,
}

impl MessageWriter {
    fn start(start: TurnStart<'_>) -> Box<dyn WireWriter> {
        let usage = start.usage;
        let mut writer = Self {
            out: WriterOutput::default(),
            id: start.id.to_owned(),
            sign: start.sign,
            open_block: None,
            has_pinged: false,
        };
        writer.write_event(&json!({ "type": "message_start", "message": {
            "id": format!("msg_{}", start.id),
            "type": "message",
            "role": "assistant",
            "model": start.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            // Only the start of the answer has been generated when this event is sent.
            "usage": usage_fields(Usage { output_tokens: usage.output_tokens.min(1), ..usage }),
        } }));
        Box::new(writer)
    }

    /// Opens a block, unless a text or thinking block with this index is already open.
    fn open_block(&mut self, index: u32, open: OpenBlock, block: &Value) {
        let same = match (&self.open_block, &open) {
            (Some((at, OpenBlock::Text)), OpenBlock::Text)
            | (Some((at, OpenBlock::Thinking(..))), OpenBlock::Thinking(..)) => *at == index,
            _ => false,
        };
        if same {
            return;
        }
        self.close_block();
        self.open_block = Some((index, open));
        self.write_event(
            &json!({ "type": "content_block_start", "index": index, "content_block": block }),
        );
        // The API sends a ping after the first `content_block_start` event.
        if !std::mem::replace(&mut self.has_pinged, true) {
            self.write_event(&json!({ "type": "ping" }));
        }
    }

    fn close_block(&mut self) {
        let Some((index, open)) = self.open_block.take() else { return };
        match open {
            OpenBlock::Thinking(text, own) => {
                if let Some(signature) = own.or_else(|| (self.sign)(&text)) {
                    self.out.record_signature(&signature, &text);
                    let delta = json!({ "type": "signature_delta", "signature": signature });
                    self.write_delta(index, &delta);
                }
            }
            OpenBlock::Text | OpenBlock::Call => {}
        }
        self.write_event(&json!({ "type": "content_block_stop", "index": index }));
    }

    fn write_delta(&mut self, index: u32, delta: &Value) {
        self.write_event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    }

    /// Writes a delta of this type, whose text is in the field `field`.
    fn write_text(&mut self, index: u32, kind: &str, field: &'static str, text: &str) {
        let template = self.out.take_template((field, index)).unwrap_or_else(|| {
            let delta = json!({ "type": kind, field: TEXT_MARK });
            let event = json!({ "type": "content_block_delta", "index": index, "delta": delta });
            TextTemplate::of(event_frame(&event))
        });
        self.out.push_text((field, index), template, text, 0);
    }

    fn write_event(&mut self, event: &Value) {
        self.out.push(event_frame(event));
    }
}

/// Returns the frame of an event, which is named after its type.
fn event_frame(event: &Value) -> Frame {
    let name = event["type"].as_str().unwrap_or_default().to_owned();
    Frame { event: Some(name.into()), ..Frame::new(None, event) }
}

impl WireWriter for MessageWriter {
    fn output(&mut self) -> &mut WriterOutput {
        &mut self.out
    }

    fn continue_text(&mut self, index: u32, _text: &str) -> Option<usize> {
        let is_open = matches!(self.open_block, Some((at, OpenBlock::Text)) if at == index);
        (is_open && self.out.continues(("text", index))).then_some(0)
    }

    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), UnsupportedContent> {
        match delta {
            ContentDelta::Text(piece) | ContentDelta::Refusal(piece) => {
                self.open_block(index, OpenBlock::Text, &json!({ "type": "text", "text": "" }));
                self.write_text(index, "text_delta", "text", &piece);
            }
            ContentDelta::Reasoning(_, piece) => {
                let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                self.open_block(index, OpenBlock::Thinking(String::new(), None), &block);
                if let Some((_, OpenBlock::Thinking(text, _))) = &mut self.open_block {
                    text.push_str(&piece);
                }
                self.write_text(index, "thinking_delta", "thinking", &piece);
            }
            ContentDelta::Signature(SignatureTarget::Reasoning, signature) => {
                if let Some((_, OpenBlock::Thinking(_, own))) = &mut self.open_block {
                    *own = Some(signature);
                }
            }
            ContentDelta::Signature(..) => return Err("a signature of text or of a call"),
            ContentDelta::HiddenReasoning(data) => {
                self.close_block();
                self.out.record_signature(&data, "");
                let block = json!({ "type": "redacted_thinking", "data": data });
                self.open_block(index, OpenBlock::Call, &block);
                self.close_block();
            }
            ContentDelta::CallStart { call_id: id, name } => {
                let id = call_id_or_generated("toolu", id, &self.id, index);
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.open_block(index, OpenBlock::Call, &block);
                self.write_delta(index, &json!({ "type": "input_json_delta", "partial_json": "" }));
            }
            ContentDelta::CallArgs(piece) => {
                self.write_text(index, "input_json_delta", "partial_json", &piece);
            }
            ContentDelta::CallEnd => self.close_block(),
        }
        Ok(())
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), UnsupportedContent> {
        // No `content_block_stop` is sent for a call whose arguments are truncated.
        if !matches!(self.open_block, Some((_, OpenBlock::Call))) {
            self.close_block();
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
            StopReason::Interrupted => return Err("an interrupted turn"),
        };
        let mut counted = usage_fields(usage);
        counted["output_tokens_details"] = json!({ "thinking_tokens": usage.reasoning_tokens });
        let delta = json!({ "stop_reason": reason, "stop_sequence": null });
        self.write_event(&json!({ "type": "message_delta", "delta": delta, "usage": counted }));
        self.write_event(&json!({ "type": "message_stop" }));
        Ok(())
    }
}

/// Returns the usage in the wire format, in which `input_tokens` excludes tokens read from or
/// written to the cache.
fn usage_fields(usage: Usage) -> Value {
    let cached = usage.cache_read_input_tokens + usage.cache_write_input_tokens;
    json!({
        "input_tokens": usage.input_tokens.saturating_sub(cached),
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation_input_tokens": usage.cache_write_input_tokens,
        "output_tokens": usage.output_tokens,
    })
}

/// Returns the `type` value that the API uses for an error, as documented at
/// <https://docs.anthropic.com/en/api/errors>.
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
        (kind, _) if default_status(kind) == 400 => "invalid_request_error",
        _ => "api_error",
    }
}
