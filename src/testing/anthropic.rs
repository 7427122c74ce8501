//! A reply of a script on the Anthropic Messages wire.

use serde_json::{Value, json};

use crate::error::{Error, ErrorKind};
use crate::item::StopReason;
use crate::provider::{Move, Reply};
use crate::sse::write_frame;
use crate::testing::http::{HttpResponse, Part};
use crate::usage::Usage;

/// The answer to request number `n`.
pub(super) fn response(reply: Reply, body: &Value, n: usize) -> HttpResponse {
    let moves = reply.into_moves();
    if let Some(Move::Error(error)) = moves.first()
        && let Some(status) = error.status()
    {
        return refused(status, error);
    }
    if moves.iter().any(|step| matches!(step, Move::Event(_) | Move::Retract(_))) {
        return refusal(500, "api_error", "this reply cannot be said on this wire");
    }
    let mut stream = Writer::new(body, n);
    for step in moves {
        stream.play(step);
    }
    HttpResponse {
        status: 200,
        headers: vec![
            ("content-type".to_owned(), "text/event-stream; charset=utf-8".to_owned()),
            ("request-id".to_owned(), format!("req_{n:04}")),
        ],
        body: stream.parts,
    }
}

/// An answer that is an error by its status.
pub(super) fn refusal(status: u16, kind: &str, message: &str) -> HttpResponse {
    let body = json!({ "type": "error", "error": { "type": kind, "message": message } });
    HttpResponse {
        status,
        headers: vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("request-id".to_owned(), "req_refused".to_owned()),
        ],
        body: vec![Part::Bytes(body.to_string().into())],
    }
}

fn refused(status: u16, error: &Error) -> HttpResponse {
    let mut response = refusal(status, word(error.kind()), error.message());
    if let Some(wait) = error.retry_after() {
        // "retry-after" counts whole seconds.
        let seconds = wait.as_secs_f64().ceil().to_string();
        response.headers.push(("retry-after".to_owned(), seconds));
    }
    response
}

fn word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Auth => "authentication_error",
        ErrorKind::Billing => "billing_error",
        ErrorKind::RateLimited => "rate_limit_error",
        ErrorKind::Overloaded => "overloaded_error",
        ErrorKind::Timeout => "timeout_error",
        ErrorKind::InvalidRequest => "invalid_request_error",
        _ => "api_error",
    }
}

struct Writer {
    parts: Vec<Part>,
    n: usize,
    open: Option<(u32, Kind)>,
    usage: Usage,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

impl Writer {
    fn new(body: &Value, n: usize) -> Self {
        let mut writer = Self { parts: Vec::new(), n, open: None, usage: Usage::default() };
        writer.event(&json!({
            "type": "message_start",
            "message": {
                "id": format!("msg_{n:04}"),
                "type": "message",
                "role": "assistant",
                "model": body["model"],
                "content": [],
                "stop_reason": null,
                "stop_sequence": null,
                "usage": { "input_tokens": 0, "output_tokens": 0 },
            },
        }));
        writer
    }

    fn play(&mut self, step: Move) {
        match step {
            Move::Text { index, piece } | Move::Refusal { index, piece } => {
                self.block(index, Kind::Text, || json!({ "type": "text", "text": "" }));
                self.delta(index, &json!({ "type": "text_delta", "text": piece }));
            }
            Move::Reasoning { index, piece, .. } => {
                self.block(index, Kind::Thinking, || json!({ "type": "thinking", "thinking": "" }));
                self.delta(index, &json!({ "type": "thinking_delta", "thinking": piece }));
            }
            Move::CallStart { index, call_id, name } => {
                let id = match call_id.as_str() {
                    "" => format!("toolu_{:04}_{index}", self.n),
                    id => id.to_owned(),
                };
                self.block(
                    index,
                    Kind::Call,
                    || json!({ "type": "tool_use", "id": id, "name": name, "input": {} }),
                );
            }
            Move::CallArgs { index, piece } => {
                self.delta(index, &json!({ "type": "input_json_delta", "partial_json": piece }));
            }
            Move::CallEnd { .. } => self.close(),
            Move::Usage(usage) => self.usage = usage,
            Move::Stop { reason, .. } => self.stop(&reason),
            Move::Error(error) => self.event(&json!({
                "type": "error",
                "error": { "type": word(error.kind()), "message": error.message() },
            })),
            Move::Cut => self.parts.push(Part::Cut),
            Move::Delay(time) => self.parts.push(Part::Delay(time)),
            Move::Hang => self.parts.push(Part::Hang),
            // Refused before anything was written.
            Move::Event(_) | Move::Retract(_) => {}
        }
    }

    fn stop(&mut self, reason: &StopReason) {
        // A call that was not written to its end has no end on the wire either.
        if !matches!(self.open, Some((_, Kind::Call))) {
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
        let usage = self.usage;
        let cached = usage.cache_read_input_tokens + usage.cache_write_input_tokens;
        self.event(&json!({
            "type": "message_delta",
            "delta": { "stop_reason": reason, "stop_sequence": null },
            "usage": {
                "input_tokens": usage.input_tokens.saturating_sub(cached),
                "cache_read_input_tokens": usage.cache_read_input_tokens,
                "cache_creation_input_tokens": usage.cache_write_input_tokens,
                "output_tokens": usage.output_tokens,
                "output_tokens_details": { "thinking_tokens": usage.reasoning_tokens },
            },
        }));
        self.event(&json!({ "type": "message_stop" }));
    }

    fn block(&mut self, index: u32, kind: Kind, start: impl FnOnce() -> Value) {
        if self.open == Some((index, kind)) {
            return;
        }
        self.close();
        self.open = Some((index, kind));
        let block = start();
        self.event(
            &json!({ "type": "content_block_start", "index": index, "content_block": block }),
        );
    }

    fn close(&mut self) {
        let Some((index, kind)) = self.open.take() else { return };
        if kind == Kind::Thinking {
            self.delta(index, &json!({ "type": "signature_delta", "signature": "c2NyaXB0ZWQ=" }));
        }
        self.event(&json!({ "type": "content_block_stop", "index": index }));
    }

    fn delta(&mut self, index: u32, delta: &Value) {
        self.event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    }

    fn event(&mut self, event: &Value) {
        let mut frame = Vec::new();
        write_frame(&mut frame, event["type"].as_str(), &event.to_string());
        self.parts.push(Part::Bytes(frame.into()));
    }
}
