//! The server side of Gemini's `streamGenerateContent` method,
//! <https://ai.google.dev/api/generate-content>.

use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::item::StopReason;
use crate::provider::codec::content_delta::{ContentDelta, SignatureTarget};
use crate::provider::server::{
    BufferedCall, Frame, FrameFormat, ServerWire, SignFn, TEXT_MARK, TextTemplate, TurnStart,
    UnsupportedContent, WireWriter, WriterOutput, call_id_or_generated, default_status,
    error_message,
};
use crate::usage::Usage;

pub(in crate::provider) const SERVER_WIRE: ServerWire = ServerWire {
    // The format is a JSON array, unless the request asks for server-sent events.
    format: |path| {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        match query.split('&').any(|pair| pair == "alt=sse") {
            true => FrameFormat::GEMINI_EVENTS,
            false => FrameFormat::JSON_ARRAY,
        }
    },
    // The delay is part of the error body.
    retry_after_header: |_| None,
    ..ServerWire::new("gemini", ContentWriter::start, |error, status| {
        let mut inner = json!({
            "code": status,
            "message": error_message(error, &[
                (ErrorKind::ContextWindow, "exceeds the maximum number of tokens"),
                (ErrorKind::ReasoningRefused, "Corrupted thought signature."),
            ]),
            "status": error_status(error.kind(), status),
        });
        if let Some(wait) = error.retry_after() {
            inner["details"] = json!([{
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": format!("{}s", wait.as_secs_f64()),
            }]);
        }
        json!({ "error": inner })
    })
};

struct ContentWriter {
    out: WriterOutput,
    id: String,
    model: String,
    /// The token counts to report in every chunk except the last.
    usage: Usage,
    /// Whether the model assigns ids to its calls and signs the first call in each turn.
    is_gemini_3: bool,
    sign: SignFn,
    /// The finished calls, which are sent in a single chunk.
    buffered_calls: Vec<Value>,
    /// The call that is being written.
    open_call: BufferedCall,
    /// The signature to attach to the next part.
    pending_signature: Option<String>,
    has_signed_call: bool,
}

impl ContentWriter {
    fn start(start: TurnStart<'_>) -> Box<dyn WireWriter> {
        Box::new(Self {
            out: WriterOutput::default(),
            id: start.id.to_owned(),
            model: start.model.to_owned(),
            usage: Usage { output_tokens: 0, reasoning_tokens: 0, ..start.usage },
            is_gemini_3: start.model.contains("gemini-3"),
            sign: start.sign,
            buffered_calls: Vec::new(),
            open_call: BufferedCall::default(),
            pending_signature: None,
            has_signed_call: false,
        })
    }

    fn end_call(&mut self) -> Result<(), UnsupportedContent> {
        let Some((mut call, arguments)) = self.open_call.end()? else { return Ok(()) };
        call["args"] = arguments;
        let signed = signed_call_text(&call);
        if self.is_gemini_3 && !self.has_signed_call && self.pending_signature.is_none() {
            self.pending_signature = (self.sign)(&signed);
        }
        let part = self.sign_part(json!({ "functionCall": call }), &signed);
        self.has_signed_call = true;
        self.buffered_calls.push(part);
        Ok(())
    }

    /// Attaches the pending signature, if any, to a part.
    fn sign_part(&mut self, mut part: Value, signed: &str) -> Value {
        if let Some(signature) = self.pending_signature.take() {
            self.out.record_signature(&signature, signed);
            part["thoughtSignature"] = signature.into();
        }
        part
    }

    /// Writes a part, with the pending signature, if any.
    fn write_part(&mut self, part: Value) {
        self.flush();
        let part = self.sign_part(part, "");
        self.write_chunk(&json!([part]), None, self.usage);
    }

    /// Writes a part that contains only a text.
    fn write_text(&mut self, is_thought: bool, text: &str) {
        self.flush();
        let frames = (if is_thought { "thought" } else { "text" }, 0);
        let template = self.out.take_template(frames).unwrap_or_else(|| {
            let mut part = json!({ "text": TEXT_MARK });
            if is_thought {
                part["thought"] = true.into();
            }
            TextTemplate::of(self.chunk_frame(&json!([part]), None, self.usage))
        });
        self.out.push_text(frames, template, text, 0);
    }

    fn write_chunk(&mut self, parts: &Value, finish: Option<&str>, usage: Usage) {
        let frame = self.chunk_frame(parts, finish, usage);
        self.out.push(frame);
    }

    fn chunk_frame(&self, parts: &Value, finish: Option<&str>, usage: Usage) -> Frame {
        let mut candidate = json!({
            "content": { "parts": parts, "role": "model" },
            "index": 0,
        });
        let mut counted = json!({
            "promptTokenCount": usage.input_tokens,
            "totalTokenCount": usage.total(),
        });
        // The API omits counts of zero, and it counts reasoning tokens separately.
        let signed = usage.output_tokens.saturating_sub(usage.reasoning_tokens);
        for (name, tokens) in [
            ("candidatesTokenCount", signed),
            ("thoughtsTokenCount", usage.reasoning_tokens),
            ("cachedContentTokenCount", usage.cache_read_input_tokens),
        ] {
            if tokens > 0 {
                counted[name] = tokens.into();
            }
        }
        if let Some(reason) = finish {
            candidate["finishReason"] = reason.into();
            if reason == "CONTINUATION" {
                candidate["continuationToken"] = format!("continue_{}", self.id).into();
            }
        }
        let chunk = json!({
            "modelVersion": self.model,
            "responseId": format!("response-{}", self.id),
            "candidates": [candidate],
            "usageMetadata": counted,
        });
        Frame::new(None, &chunk)
    }
}

/// Returns the content that a call's signature covers: the call's name and arguments.
fn signed_call_text(call: &Value) -> String {
    let args = call.get("args").cloned().unwrap_or_else(|| json!({}));
    format!("{}{args}", call["name"].as_str().unwrap_or_default())
}

impl WireWriter for ContentWriter {
    fn output(&mut self) -> &mut WriterOutput {
        &mut self.out
    }

    fn continue_text(&mut self, _index: u32, _text: &str) -> Option<usize> {
        (self.pending_signature.is_none() && self.out.continues(("text", 0))).then_some(0)
    }

    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), UnsupportedContent> {
        match delta {
            ContentDelta::Text(piece) if self.pending_signature.is_none() => {
                self.write_text(false, &piece);
            }
            ContentDelta::Text(piece) => self.write_part(json!({ "text": piece })),
            ContentDelta::Refusal(_) => return Err("a refusal"),
            ContentDelta::Reasoning(_, piece) => {
                self.write_text(true, &piece);
            }
            ContentDelta::Signature(SignatureTarget::Reasoning, signature)
            | ContentDelta::HiddenReasoning(signature) => {
                self.pending_signature = Some(signature);
            }
            // Newer models send this signature in a separate, empty text part.
            ContentDelta::Signature(SignatureTarget::Text, signature) => {
                self.pending_signature = Some(signature);
                self.write_part(json!({ "text": "" }));
            }
            ContentDelta::Signature(SignatureTarget::Call, signature) => {
                let part = self.buffered_calls.last_mut();
                let part = part.ok_or("a signature of a call that has been sent already")?;
                self.out.record_signature(&signature, &signed_call_text(&part["functionCall"]));
                part["thoughtSignature"] = signature.into();
            }
            ContentDelta::CallStart { call_id: id, name } => {
                let mut call = json!({ "name": name });
                match id.as_str() {
                    "" if !self.is_gemini_3 => {}
                    _ => call["id"] = call_id_or_generated("call", id, &self.id, index).into(),
                }
                self.open_call.start(call);
            }
            ContentDelta::CallArgs(piece) => self.open_call.push(&piece),
            ContentDelta::CallEnd => self.end_call()?,
        }
        Ok(())
    }

    fn flush(&mut self) {
        if !self.buffered_calls.is_empty() {
            let calls = Value::from(std::mem::take(&mut self.buffered_calls));
            self.write_chunk(&calls, None, self.usage);
        }
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), UnsupportedContent> {
        self.open_call.check_ended()?;
        let reason = match reason {
            // The API has no separate finish reason for tool calls.
            StopReason::Stop | StopReason::ToolCalls => "STOP",
            StopReason::MaxTokens => "MAX_TOKENS",
            StopReason::ContentFilter => "SAFETY",
            StopReason::Other(raw) => raw,
            StopReason::Pause => "CONTINUATION",
            StopReason::Refusal => return Err("a refusal"),
            StopReason::ContextWindow => return Err("the end of the context window"),
            StopReason::Interrupted => return Err("an interrupted turn"),
        };
        self.flush();
        let part = self.sign_part(json!({ "text": "" }), "");
        self.write_chunk(&json!([part]), Some(reason), usage);
        Ok(())
    }
}

/// Returns the `status` value for an error,
/// <https://ai.google.dev/gemini-api/docs/troubleshooting>.
fn error_status(kind: ErrorKind, status: u16) -> &'static str {
    match (kind, status) {
        (_, 404) => "NOT_FOUND",
        (_, 403) => "PERMISSION_DENIED",
        (ErrorKind::Auth, _) => "UNAUTHENTICATED",
        (ErrorKind::RateLimited | ErrorKind::Billing, _) => "RESOURCE_EXHAUSTED",
        (ErrorKind::Overloaded, _) => "UNAVAILABLE",
        (ErrorKind::Timeout, _) => "DEADLINE_EXCEEDED",
        (kind, _) if matches!(default_status(kind), 400 | 413) => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}
