//! Gemini's `streamGenerateContent`, <https://ai.google.dev/api/generate-content>.

use serde_json::{Map, Value, json};

use super::{Frame, Role, Step, Unsayable, Write, cannot};
use crate::item::StopReason;
use crate::provider::{Move, Signed};
use crate::testing::proof::{Proofs, sign};
use crate::testing::{Asked, Wire};
use crate::usage::Usage;

pub(super) struct Writer<'a> {
    out: Vec<Step>,
    n: usize,
    model: String,
    /// What every chunk counts until the end.
    usage: Usage,
    /// Whether the model gives its calls ids and signs the first of a turn.
    signs: bool,
    /// Calls, which come together.
    calls: Vec<Value>,
    /// The call that is being written: its arguments so far.
    arguments: Option<(Value, String)>,
    /// A signature for the next part that is said.
    signature: Option<String>,
    signed_a_call: bool,
    proofs: &'a mut Proofs,
}

impl<'a> Writer<'a> {
    pub(super) fn new(asked: &Asked, usage: Usage, proofs: &'a mut Proofs) -> Self {
        Self {
            out: Vec::new(),
            n: asked.n,
            model: asked.model.clone(),
            usage: Usage { output_tokens: 0, reasoning_tokens: 0, ..usage },
            signs: asked.model.contains("gemini-3"),
            calls: Vec::new(),
            arguments: None,
            signature: None,
            signed_a_call: false,
            proofs,
        }
    }

    fn call_end(&mut self) -> Result<(), Unsayable> {
        let Some((mut call, arguments)) = self.arguments.take() else { return Ok(()) };
        let arguments = match arguments.trim() {
            "" => Some(Map::new()),
            written => serde_json::from_str(written).ok(),
        };
        let Some(arguments) = arguments else {
            return Err(cannot(Self::WIRE, "arguments that are no JSON object"));
        };
        call["args"] = arguments.into();
        let said = signed_call(&call);
        let mut part = json!({ "functionCall": call });
        let own = (self.signs && !self.signed_a_call).then(|| sign(&said));
        if let Some(signature) = self.signature.take().or(own) {
            self.proofs.give(&signature, &said);
            part["thoughtSignature"] = signature.into();
        }
        self.signed_a_call = true;
        self.calls.push(part);
        Ok(())
    }

    /// Says a part that may carry the signature that waits for one.
    fn part(&mut self, mut part: Value) {
        self.flush();
        if let Some(signature) = self.signature.take() {
            self.proofs.give(&signature, "");
            part["thoughtSignature"] = signature.into();
        }
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
        let mut chunk = json!({
            "modelVersion": self.model,
            "responseId": format!("response-{:04}", self.n),
        });
        let role = match finish {
            Some(reason) => {
                candidate["finishReason"] = reason.into();
                Role::Terminal
            }
            None => Role::Event,
        };
        chunk["candidates"] = json!([candidate]);
        chunk["usageMetadata"] = counted;
        self.out.push(Step::Frame(Frame { event: None, data: chunk.to_string(), role }));
    }
}

/// What a signature of a call is given for.
pub(in crate::testing) fn signed_call(call: &Value) -> String {
    let args = call.get("args").cloned().unwrap_or_else(|| json!({}));
    format!("{}{args}", call["name"].as_str().unwrap_or_default())
}

impl Write for Writer<'_> {
    const WIRE: Wire = Wire::Gemini;

    fn out(&mut self) -> &mut Vec<Step> {
        &mut self.out
    }

    fn say(&mut self, said: Move) -> Result<(), Unsayable> {
        match said {
            Move::Text { piece, .. } => self.part(json!({ "text": piece })),
            Move::Refusal { .. } => return Err(cannot(Self::WIRE, "a refusal")),
            Move::Reasoning { piece, .. } => {
                self.flush();
                self.chunk(&json!([{ "text": piece, "thought": true }]), None, self.usage);
            }
            Move::Sign { of: Signed::Reasoning, signature, .. }
            | Move::Hidden { data: signature, .. } => self.signature = Some(signature),
            // A part of its own, without words, as the vendor's newer models have it.
            Move::Sign { of: Signed::Text, signature, .. } => {
                self.signature = Some(signature);
                self.part(json!({ "text": "" }));
            }
            Move::Sign { of: Signed::Call, signature, .. } => {
                if let Some(part) = self.calls.last_mut() {
                    self.proofs.give(&signature, &signed_call(&part["functionCall"]));
                    part["thoughtSignature"] = signature.into();
                }
            }
            Move::CallStart { index, call_id, name } => {
                let mut call = json!({ "name": name });
                match call_id.as_str() {
                    "" if !self.signs => {}
                    _ => call["id"] = super::call_id("call", call_id, self.n, index).into(),
                }
                self.arguments = Some((call, String::new()));
            }
            Move::CallArgs { piece, .. } => {
                if let Some((_, arguments)) = &mut self.arguments {
                    arguments.push_str(&piece);
                }
            }
            Move::CallEnd { .. } => self.call_end()?,
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self) {
        if !self.calls.is_empty() {
            let calls = Value::from(std::mem::take(&mut self.calls));
            self.chunk(&calls, None, self.usage);
        }
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), Unsayable> {
        if self.arguments.is_some() {
            return Err(cannot(Self::WIRE, "a call that is cut off"));
        }
        let reason = match reason {
            // The wire has no word for calls.
            StopReason::Stop | StopReason::ToolCalls => "STOP",
            StopReason::MaxTokens => "MAX_TOKENS",
            StopReason::ContentFilter => "SAFETY",
            StopReason::Other(raw) => raw,
            StopReason::Refusal => return Err(cannot(Self::WIRE, "a refusal")),
            StopReason::Pause => return Err(cannot(Self::WIRE, "a pause")),
            StopReason::ContextWindow => {
                return Err(cannot(Self::WIRE, "the end of the context window"));
            }
        };
        self.flush();
        let mut part = json!({ "text": "" });
        if let Some(signature) = self.signature.take() {
            self.proofs.give(&signature, "");
            part["thoughtSignature"] = signature.into();
        }
        self.chunk(&json!([part]), Some(reason), usage);
        Ok(())
    }
}
