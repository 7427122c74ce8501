//! Anthropic Messages, <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.

use serde_json::{Value, json};

use super::{Frame, Role, Step, Unsayable, Write, call_id, cannot};
use crate::item::StopReason;
use crate::provider::{Move, Signed};
use crate::testing::proof::{Proofs, sign};
use crate::testing::{Asked, Wire};
use crate::usage::Usage;

pub(super) struct Writer<'a> {
    out: Vec<Step>,
    n: usize,
    open: Option<(u32, Open)>,
    proofs: &'a mut Proofs,
}

/// The block that is open.
enum Open {
    Text,
    /// With its text and the signature of the script.
    Thinking(String, Option<String>),
    Call,
}

impl<'a> Writer<'a> {
    pub(super) fn new(asked: &Asked, usage: Usage, proofs: &'a mut Proofs) -> Self {
        let mut writer = Self { out: Vec::new(), n: asked.n, open: None, proofs };
        writer.event(&json!({
            "type": "message_start",
            "message": {
                "id": format!("msg_{:04}", asked.n),
                "type": "message",
                "role": "assistant",
                "model": asked.model,
                "content": [],
                "stop_reason": null,
                "stop_sequence": null,
                // The answer has just begun.
                "usage": counted(Usage { output_tokens: usage.output_tokens.min(1), ..usage }),
            },
        }));
        writer
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
        // As the vendor does behind the first start.
        if self.out.len() == 2 {
            self.event(&json!({ "type": "ping" }));
        }
    }

    fn close(&mut self) {
        let Some((index, open)) = self.open.take() else { return };
        match open {
            Open::Thinking(text, scripted) => {
                let signature = scripted.unwrap_or_else(|| sign(&text));
                self.proofs.give(&signature, &text);
                self.delta(index, &json!({ "type": "signature_delta", "signature": signature }));
            }
            Open::Text | Open::Call => {}
        }
        self.event(&json!({ "type": "content_block_stop", "index": index }));
    }

    fn delta(&mut self, index: u32, delta: &Value) {
        self.event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    }

    fn event(&mut self, event: &Value) {
        let (name, role) = match event["type"].as_str() {
            Some("message_start") => ("message_start", Role::Event),
            Some("content_block_start") => ("content_block_start", Role::Event),
            Some("content_block_delta") => ("content_block_delta", Role::Event),
            Some("content_block_stop") => ("content_block_stop", Role::Event),
            Some("message_delta") => ("message_delta", Role::Terminal),
            Some("message_stop") => ("message_stop", Role::LastWord),
            _ => ("ping", Role::Event),
        };
        self.out.push(Step::Frame(Frame { event: Some(name), data: event.to_string(), role }));
    }
}

impl Write for Writer<'_> {
    const WIRE: Wire = Wire::Anthropic;

    fn out(&mut self) -> &mut Vec<Step> {
        &mut self.out
    }

    fn say(&mut self, said: Move) -> Result<(), Unsayable> {
        match said {
            Move::Text { index, piece } | Move::Refusal { index, piece } => {
                self.open(index, Open::Text, &json!({ "type": "text", "text": "" }));
                self.delta(index, &json!({ "type": "text_delta", "text": piece }));
            }
            Move::Reasoning { index, piece, .. } => {
                let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                self.open(index, Open::Thinking(String::new(), None), &block);
                if let Some((_, Open::Thinking(text, _))) = &mut self.open {
                    text.push_str(&piece);
                }
                self.delta(index, &json!({ "type": "thinking_delta", "thinking": piece }));
            }
            Move::Sign { of: Signed::Reasoning, signature, .. } => {
                if let Some((_, Open::Thinking(_, scripted))) = &mut self.open {
                    *scripted = Some(signature);
                }
            }
            Move::Sign { .. } => {
                return Err(cannot(Self::WIRE, "a signature of text or of a call"));
            }
            Move::Hidden { index, data } => {
                self.proofs.give(&data, "");
                let block = json!({ "type": "redacted_thinking", "data": data });
                self.open(index, Open::Call, &block);
                self.close();
            }
            Move::CallStart { index, call_id: id, name } => {
                let id = call_id("toolu", id, self.n, index);
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                self.open(index, Open::Call, &block);
                self.delta(index, &json!({ "type": "input_json_delta", "partial_json": "" }));
            }
            Move::CallArgs { index, piece } => {
                self.delta(index, &json!({ "type": "input_json_delta", "partial_json": piece }));
            }
            Move::CallEnd { .. } => self.close(),
            _ => {}
        }
        Ok(())
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), Unsayable> {
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
        self.event(&json!({
            "type": "message_delta",
            "delta": { "stop_reason": reason, "stop_sequence": null },
            "usage": counted,
        }));
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
