//! The server side of `OpenAI` Chat Completions,
//! <https://platform.openai.com/docs/api-reference/chat-streaming>.
//!
//! Signed and encrypted reasoning is written in `OpenRouter`'s format,
//! <https://openrouter.ai/docs/use-cases/reasoning-tokens>. All other reasoning is written as
//! `reasoning_content`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::item::StopReason;
use crate::provider::codec::content_delta::{ContentDelta, SignatureTarget};
use crate::provider::server::{
    Frame, REFUSAL_WITHOUT_TEXT, ServerWire, TEXT_MARK, TextTemplate, TurnStart,
    UnsupportedContent, WireWriter, WriterOutput, call_id_or_generated, openai_errors,
};
use crate::turn::ReasoningKind;
use crate::usage::Usage;

/// The value of the `format` field in reasoning details.
const REASONING_DETAIL_FORMAT: &str = "anthropic-claude-v1";

pub(in crate::provider) const SERVER_WIRE: ServerWire = ServerWire {
    request_id_header: Some(openai_errors::REQUEST_ID_HEADER),
    ..ServerWire::new("openai_chat", ChunkWriter::start, |error, _| {
        openai_errors::error_body(error, "maximum context length")
    })
};

#[derive(Default)]
struct ChunkWriter {
    out: WriterOutput,
    id: String,
    model: String,
    created_at: u64,
    include_usage: bool,
    /// The indices of all reasoning blocks that are written as reasoning details.
    detail_block_indices: BTreeSet<u32>,
    /// The signatures of the calls, by block index. A call's first chunk contains its signature.
    call_signatures: BTreeMap<u32, String>,
    /// The block index and the text of the last reasoning block.
    last_reasoning: (u32, String),
    /// The number of reasoning details written so far.
    detail_count: u32,
    /// The index of the last block that was written as a reasoning detail.
    last_detail_block_index: Option<u32>,
    call_count: u32,
    has_refusal: bool,
}

impl ChunkWriter {
    #[expect(clippy::needless_pass_by_value, reason = "other wires keep the function that signs")]
    fn start(start: TurnStart<'_>) -> Box<dyn WireWriter> {
        let mut detailed = BTreeSet::new();
        let mut signatures = BTreeMap::new();
        for (index, of, signature) in start.signatures {
            match of {
                SignatureTarget::Text => {}
                SignatureTarget::Reasoning => drop(detailed.insert(*index)),
                SignatureTarget::Call => drop(signatures.insert(*index, signature.clone())),
            }
        }
        let mut writer = Self {
            id: start.id.to_owned(),
            model: start.model.to_owned(),
            created_at: start.created_at,
            include_usage: start.request["stream_options"]["include_usage"] == json!(true),
            detail_block_indices: detailed,
            call_signatures: signatures,
            ..Self::default()
        };
        writer.write_delta(&json!({ "role": "assistant", "content": "", "refusal": null }));
        Box::new(writer)
    }

    fn write_reasoning(&mut self, index: u32, piece: &str, kind: ReasoningKind) {
        if self.last_reasoning.0 != index {
            self.last_reasoning = (index, String::new());
        }
        self.last_reasoning.1.push_str(piece);
        if !self.detail_block_indices.contains(&index) {
            return self.write_text("reasoning_content", piece);
        }
        let detail = match kind {
            ReasoningKind::Trace => json!({ "type": "reasoning.text", "text": piece }),
            ReasoningKind::Summary => json!({ "type": "reasoning.summary", "summary": piece }),
        };
        self.write_detail(index, detail, Some(piece));
    }

    /// Writes a piece of a reasoning block as a reasoning detail.
    fn write_detail(&mut self, index: u32, mut detail: Value, shown: Option<&str>) {
        if self.last_detail_block_index.replace(index) != Some(index) {
            self.detail_count += 1;
        }
        detail["index"] = (self.detail_count - 1).into();
        detail["format"] = REASONING_DETAIL_FORMAT.into();
        let mut delta = json!({ "reasoning_details": [detail] });
        if let Some(shown) = shown {
            delta["reasoning"] = shown.into();
        }
        self.write_delta(&delta);
    }

    fn write_delta(&mut self, delta: &Value) {
        let frame = self.delta_frame(delta);
        self.out.push(frame);
    }

    /// Writes a delta that contains only a text.
    fn write_text(&mut self, field: &'static str, text: &str) {
        let template = self.out.take_template((field, 0));
        let template = template
            .unwrap_or_else(|| TextTemplate::of(self.delta_frame(&json!({ field: TEXT_MARK }))));
        self.out.push_text((field, 0), template, text, 0);
    }

    fn delta_frame(&self, delta: &Value) -> Frame {
        let choice = json!({
            "index": 0, "delta": delta, "logprobs": null, "finish_reason": null,
        });
        self.chunk_frame(&json!([choice]), None)
    }

    fn write_chunk(&mut self, choices: &Value, usage: Option<Value>) {
        let frame = self.chunk_frame(choices, usage);
        self.out.push(frame);
    }

    fn chunk_frame(&self, choices: &Value, usage: Option<Value>) -> Frame {
        let mut chunk = json!({
            "id": format!("chatcmpl-{}", self.id),
            "object": "chat.completion.chunk",
            "created": self.created_at,
            "model": self.model,
            "service_tier": "default",
            "system_fingerprint": "fp_turnstream",
            "choices": choices,
        });
        // "All other chunks will also include a usage field, but with a null value."
        if self.include_usage {
            chunk["usage"] = usage.unwrap_or_default();
        }
        Frame::new(None, &chunk)
    }
}

impl WireWriter for ChunkWriter {
    fn output(&mut self) -> &mut WriterOutput {
        &mut self.out
    }

    fn continue_text(&mut self, _index: u32, _text: &str) -> Option<usize> {
        self.out.continues(("content", 0)).then_some(0)
    }

    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), UnsupportedContent> {
        match delta {
            ContentDelta::Text(piece) => self.write_text("content", &piece),
            ContentDelta::Refusal(piece) => {
                self.has_refusal = true;
                self.write_delta(&json!({ "refusal": piece }));
            }
            ContentDelta::Reasoning(kind, piece) => self.write_reasoning(index, &piece, kind),
            ContentDelta::Signature(SignatureTarget::Reasoning, signature) => {
                self.out.record_signature(&signature, &self.last_reasoning.1);
                let detail = json!({ "type": "reasoning.text", "signature": signature });
                self.write_detail(index, detail, None);
            }
            ContentDelta::Signature(SignatureTarget::Text, _) => return Err("a signature of text"),
            ContentDelta::HiddenReasoning(data) => {
                self.out.record_signature(&data, "");
                let detail = json!({ "type": "reasoning.encrypted", "data": data });
                self.write_detail(index, detail, None);
            }
            ContentDelta::CallStart { call_id: id, name } => {
                let id = call_id_or_generated("call", id, &self.id, index);
                let function = json!({ "name": name, "arguments": "" });
                let at = self.call_count;
                self.call_count += 1;
                let mut call = json!({
                    "index": at, "id": id, "type": "function", "function": function,
                });
                if let Some(signature) = self.call_signatures.remove(&index) {
                    self.out.record_signature(&signature, "");
                    // This is the field that Gemini uses in the Chat Completions API.
                    call["extra_content"]["google"]["thought_signature"] = signature.into();
                }
                self.write_delta(&json!({ "tool_calls": [call] }));
            }
            ContentDelta::CallArgs(piece) => {
                let at = self.call_count.saturating_sub(1);
                self.write_delta(&json!({ "tool_calls": [
                    { "index": at, "function": { "arguments": piece } },
                ] }));
            }
            // A call's first chunk contains its signature.
            ContentDelta::Signature(SignatureTarget::Call, _) | ContentDelta::CallEnd => {}
        }
        Ok(())
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), UnsupportedContent> {
        let reason = match reason {
            StopReason::Stop => "stop",
            // `OpenAI` sends `stop` after a refusal.
            StopReason::Refusal if self.has_refusal => "stop",
            StopReason::ToolCalls => "tool_calls",
            StopReason::MaxTokens => "length",
            StopReason::ContentFilter => "content_filter",
            StopReason::ContextWindow => "model_context_window_exceeded",
            StopReason::Other(raw) => raw,
            StopReason::Refusal => return Err(REFUSAL_WITHOUT_TEXT),
            StopReason::Pause => return Err("a pause"),
            StopReason::Interrupted => return Err("an interrupted turn"),
        };
        let choice = json!({
            "index": 0, "delta": {}, "logprobs": null, "finish_reason": reason,
        });
        self.write_chunk(&json!([choice]), None);
        if self.include_usage {
            let counted = openai_errors::usage_json(usage, "prompt_tokens", "completion_tokens");
            self.write_chunk(&json!([]), Some(counted));
        }
        self.out.push(Frame { data: "[DONE]".to_owned(), ..Frame::new(None, &Value::Null) });
        Ok(())
    }
}
