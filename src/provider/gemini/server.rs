//! Gemini's `streamGenerateContent` as a server speaks it,
//! <https://ai.google.dev/api/generate-content>.

use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::item::StopReason;
use crate::provider::content_delta::{ContentDelta, Signed};
use crate::provider::server::{
    Frame, FrameFormat, Opening, Output, Role, ServerWire, TurnWriter, Unsupported, WholeCall,
    call_id, message, usual_status,
};
use crate::usage::Usage;

pub(crate) const SERVER: ServerWire = ServerWire {
    // The `{model}` of `…/models/{model}:streamGenerateContent`.
    model: |path, _| {
        let (path, _query) = path.split_once('?').unwrap_or((path, ""));
        let (model, _method) = path.rsplit_once('/')?.1.split_once(':')?;
        Some(model)
    },
    wants_stream: |_| true,
    // A JSON array, unless the request asks for events.
    format: |path| {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        match query.split('&').any(|pair| pair == "alt=sse") {
            true => FrameFormat::GEMINI_EVENTS,
            false => FrameFormat::JSON_ARRAY,
        }
    },
    // The body tells it.
    retry_after: |_| None,
    ..ServerWire::new("gemini", ":streamGenerateContent", Writer::begin, |error, status| {
        let mut inner = json!({
            "code": status,
            "message": message(error, "exceeds the maximum number of tokens"),
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

struct Writer {
    out: Output,
    id: String,
    model: String,
    /// What every chunk counts until the end.
    usage: Usage,
    /// Whether the model gives its calls ids and signs the first of a turn.
    signs: bool,
    sign: fn(&str) -> Option<String>,
    /// Calls, which come together.
    calls: Vec<Value>,
    /// The call that is being written.
    call: WholeCall,
    /// A signature for the next part that is said.
    signature: Option<String>,
    signed_a_call: bool,
}

impl Writer {
    fn begin(opening: &Opening<'_>) -> Box<dyn TurnWriter> {
        Box::new(Self {
            out: Output::default(),
            id: opening.id.to_owned(),
            model: opening.model.to_owned(),
            usage: Usage { output_tokens: 0, reasoning_tokens: 0, ..opening.usage },
            signs: opening.model.contains("gemini-3"),
            sign: opening.sign,
            calls: Vec::new(),
            call: WholeCall::default(),
            signature: None,
            signed_a_call: false,
        })
    }

    fn call_end(&mut self) -> Result<(), Unsupported> {
        let Some((mut call, arguments)) = self.call.end()? else { return Ok(()) };
        call["args"] = arguments;
        let said = signed_call(&call);
        if self.signs && !self.signed_a_call && self.signature.is_none() {
            self.signature = (self.sign)(&said);
        }
        let part = self.signed(json!({ "functionCall": call }), &said);
        self.signed_a_call = true;
        self.calls.push(part);
        Ok(())
    }

    /// Gives a part the signature that waits for one.
    fn signed(&mut self, mut part: Value, said: &str) -> Value {
        if let Some(signature) = self.signature.take() {
            self.out.sign(&signature, said);
            part["thoughtSignature"] = signature.into();
        }
        part
    }

    /// Writes a part that may carry the signature that waits for one.
    fn part(&mut self, part: Value) {
        self.flush();
        let part = self.signed(part, "");
        self.chunk(&json!([part]), None, self.usage);
    }

    fn chunk(&mut self, parts: &Value, finish: Option<&str>, usage: Usage) {
        let mut candidate = json!({
            "content": { "parts": parts, "role": "model" },
            "index": 0,
        });
        let mut counted = json!({
            "promptTokenCount": usage.input_tokens,
            "totalTokenCount": usage.total(),
        });
        // Counts of nothing are left out on this wire, and thoughts count apart.
        let said = usage.output_tokens.saturating_sub(usage.reasoning_tokens);
        for (name, tokens) in [
            ("candidatesTokenCount", said),
            ("thoughtsTokenCount", usage.reasoning_tokens),
            ("cachedContentTokenCount", usage.cache_read_input_tokens),
        ] {
            if tokens > 0 {
                counted[name] = tokens.into();
            }
        }
        let role = match finish {
            Some(reason) => {
                candidate["finishReason"] = reason.into();
                Role::Terminal
            }
            None => Role::Event,
        };
        let chunk = json!({
            "modelVersion": self.model,
            "responseId": format!("response-{}", self.id),
            "candidates": [candidate],
            "usageMetadata": counted,
        });
        self.out.frames.push(Frame { event: None, data: chunk.to_string(), role });
    }
}

/// What a signature of a call is given for.
pub(crate) fn signed_call(call: &Value) -> String {
    let args = call.get("args").cloned().unwrap_or_else(|| json!({}));
    format!("{}{args}", call["name"].as_str().unwrap_or_default())
}

impl TurnWriter for Writer {
    fn output(&mut self) -> &mut Output {
        &mut self.out
    }

    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), Unsupported> {
        match delta {
            ContentDelta::Text(piece) => self.part(json!({ "text": piece })),
            ContentDelta::Refusal(_) => return Err("a refusal"),
            ContentDelta::Reasoning(_, piece) => {
                self.flush();
                self.chunk(&json!([{ "text": piece, "thought": true }]), None, self.usage);
            }
            ContentDelta::Sign(Signed::Reasoning, signature) | ContentDelta::Hidden(signature) => {
                self.signature = Some(signature);
            }
            // A part of its own, without words, as the vendor's newer models have it.
            ContentDelta::Sign(Signed::Text, signature) => {
                self.signature = Some(signature);
                self.part(json!({ "text": "" }));
            }
            ContentDelta::Sign(Signed::Call, signature) => {
                if let Some(part) = self.calls.last_mut() {
                    self.out.sign(&signature, &signed_call(&part["functionCall"]));
                    part["thoughtSignature"] = signature.into();
                }
            }
            ContentDelta::CallStart { call_id: id, name } => {
                let mut call = json!({ "name": name });
                match id.as_str() {
                    "" if !self.signs => {}
                    _ => call["id"] = call_id("call", id, &self.id, index).into(),
                }
                self.call.start(call);
            }
            ContentDelta::CallArgs(piece) => self.call.push(&piece),
            ContentDelta::CallEnd => self.call_end()?,
        }
        Ok(())
    }

    fn flush(&mut self) {
        if !self.calls.is_empty() {
            let calls = Value::from(std::mem::take(&mut self.calls));
            self.chunk(&calls, None, self.usage);
        }
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), Unsupported> {
        self.call.check_ended()?;
        let reason = match reason {
            // The wire has no word for calls.
            StopReason::Stop | StopReason::ToolCalls => "STOP",
            StopReason::MaxTokens => "MAX_TOKENS",
            StopReason::ContentFilter => "SAFETY",
            StopReason::Other(raw) => raw,
            StopReason::Refusal => return Err("a refusal"),
            StopReason::Pause => return Err("a pause"),
            StopReason::ContextWindow => return Err("the end of the context window"),
        };
        self.flush();
        let part = self.signed(json!({ "text": "" }), "");
        self.chunk(&json!([part]), Some(reason), usage);
        Ok(())
    }
}

/// <https://ai.google.dev/gemini-api/docs/troubleshooting>
fn error_status(kind: ErrorKind, status: u16) -> &'static str {
    match (kind, status) {
        (_, 404) => "NOT_FOUND",
        (_, 403) => "PERMISSION_DENIED",
        (ErrorKind::Auth, _) => "UNAUTHENTICATED",
        (ErrorKind::RateLimited | ErrorKind::Billing, _) => "RESOURCE_EXHAUSTED",
        (ErrorKind::Overloaded, _) => "UNAVAILABLE",
        (ErrorKind::Timeout, _) => "DEADLINE_EXCEEDED",
        (kind, _) if matches!(usual_status(kind), 400 | 413) => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}
