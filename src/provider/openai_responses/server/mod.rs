//! `OpenAI` Responses as a server speaks them,
//! <https://platform.openai.com/docs/api-reference/responses-streaming>.

mod item;

use std::borrow::Cow;

use serde_json::{Value, json};

use self::item::{Kind, Open, Status};
use crate::item::StopReason;
use crate::provider::content_delta::{ContentDelta, Signed};
use crate::provider::server::{
    Frame, Issued, Opening, Output, Role, ServerWire, TurnWriter, Unsupported, call_id,
    openai_errors,
};
use crate::turn::ReasoningKind;
use crate::usage::Usage;

pub(crate) const SERVER: ServerWire = ServerWire {
    ping: |n| {
        let data = format!(r#"{{"type":"keepalive","sequence_number":{n}}}"#);
        Some(Frame { event: Some("keepalive".into()), data, role: Role::Event })
    },
    error_frame,
    request_id: Some(openai_errors::REQUEST_ID),
    ..ServerWire::new("openai_responses", "/responses", Writer::begin, |error, _| {
        openai_errors::error_body(error, "context window")
    })
};

/// The vendor has two shapes for it: one before the answer has begun, and one after.
fn error_frame(body: &Value, n: usize) -> Frame {
    let [code, message, param] = ["code", "message", "param"].map(|name| &body["error"][name]);
    match n {
        0..=2 => Frame::event(
            Some("error"),
            &json!({
                "type": "error", "code": code, "message": message, "param": param,
                "sequence_number": n,
            }),
        ),
        _ => Frame::event(
            Some("response.failed"),
            &json!({ "type": "response.failed", "sequence_number": n, "response": {
                "object": "response",
                "status": "failed",
                "error": { "code": code, "message": message },
                "incomplete_details": null,
                "output": [],
                "usage": null,
            } }),
        ),
    }
}

struct Writer {
    out: Output,
    /// The number of frames so far.
    frames: usize,
    id: String,
    /// The response without its output, as every event of its life has it.
    response: Value,
    /// Whether the request asks for encrypted reasoning: without asking it does not come.
    encrypts: bool,
    sign: fn(&str) -> Option<String>,
    open: Option<(u32, Open)>,
    output: Vec<Value>,
    /// The reasoning item that nothing has followed yet.
    reasoned: Option<String>,
    refused: bool,
}

impl Writer {
    fn begin(opening: &Opening<'_>) -> Box<dyn TurnWriter> {
        let body = opening.request;
        let or = |field: &str, usual: Value| match &body[field] {
            Value::Null => usual,
            given => given.clone(),
        };
        let response = json!({
            "id": format!("resp_{}", opening.id),
            "object": "response",
            "created_at": opening.created,
            "status": "in_progress",
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": body["instructions"],
            "max_output_tokens": body["max_output_tokens"],
            "model": opening.model,
            "output": [],
            "parallel_tool_calls": or("parallel_tool_calls", json!(true)),
            "previous_response_id": body["previous_response_id"],
            "reasoning": { "effort": body["reasoning"]["effort"], "summary": null },
            "store": or("store", json!(true)),
            "temperature": or("temperature", json!(1.0)),
            "text": or("text", json!({ "format": { "type": "text" } })),
            "tool_choice": or("tool_choice", json!("auto")),
            "tools": or("tools", json!([])),
            "top_p": or("top_p", json!(1.0)),
            "truncation": "disabled",
            "usage": null,
            "metadata": or("metadata", json!({})),
        });
        let mut writer = Self {
            out: Output::default(),
            id: opening.id.to_owned(),
            response,
            frames: 0,
            encrypts: body["include"].as_array().is_some_and(|words| {
                words.iter().any(|word| word == "reasoning.encrypted_content")
            }),
            sign: opening.sign,
            open: None,
            output: Vec::new(),
            reasoned: None,
            refused: false,
        };
        for name in ["response.created", "response.in_progress"] {
            writer.event(name, json!({ "response": writer.response }));
        }
        Box::new(writer)
    }

    /// Opens an item unless it is open.
    fn open(&mut self, index: u32, open: Open) {
        if self.open.as_ref().is_some_and(|(at, _)| *at == index) {
            return;
        }
        self.close();
        let item = open.item(&self.id, index, Status::InProgress);
        self.event("response.output_item.added", json!({ "item": item }));
        if let Some((part, _)) = open.part_names() {
            let added = self.place(index, &open, "part", &open.part(""));
            self.event(format!("{part}.added"), added);
        }
        self.open = Some((index, open));
    }

    fn close(&mut self) {
        let Some((index, open)) = self.open.take() else { return };
        let mut item = open.item(&self.id, index, Status::Completed);
        let done = self.place(index, &open, open.field(), &json!(open.text));
        self.event(format!("{}.done", open.text_event()), done);
        if let Some((part, _)) = open.part_names() {
            let done = self.place(index, &open, "part", &open.part(&open.text));
            self.event(format!("{part}.done"), done);
        }
        if open.is_reasoning() {
            self.encrypt(&mut item, open.signature);
        }
        self.finish(item);
    }

    /// An item that is written to its end.
    fn finish(&mut self, item: Value) {
        self.event("response.output_item.done", json!({ "item": item }));
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        if item["type"] == "reasoning" {
            self.reasoned = Some(id);
        } else if let Some(reasoning) = self.reasoned.take() {
            self.out.issued.push(Issued::Follows { item: id, reasoning });
        }
        self.output.push(item);
    }

    /// "`encrypted_content` is populated when a response is generated with
    /// `reasoning.encrypted_content` in the include parameter"
    fn encrypt(&mut self, item: &mut Value, own: Option<String>) {
        let id = item["id"].as_str().unwrap_or_default();
        if self.encrypts
            && let Some(encrypted) = own.or_else(|| (self.sign)(id))
        {
            self.out.sign(&encrypted, id);
            item["encrypted_content"] = encrypted.into();
        }
    }

    /// A piece of what is open.
    fn piece(&mut self, piece: &str) {
        let Some((index, mut open)) = self.open.take() else { return };
        open.text.push_str(piece);
        let delta = self.place(index, &open, "delta", &json!(piece));
        self.event(format!("{}.delta", open.text_event()), delta);
        self.open = Some((index, open));
    }

    /// The data of an event about an open item or its only part.
    fn place(&self, index: u32, open: &Open, field: &str, value: &Value) -> Value {
        let mut event = json!({
            "item_id": open.id(&self.id, index), "output_index": self.output.len(), field: value,
        });
        if let Some((_, part_index)) = open.part_names() {
            event[part_index] = 0.into();
        }
        event
    }

    fn event(&mut self, name: impl Into<Cow<'static, str>>, mut event: Value) {
        let name = name.into();
        if event.get("item").is_some() {
            event["output_index"] = self.output.len().into();
        }
        event["type"] = (*name).into();
        event["sequence_number"] = self.frames.into();
        self.frames += 1;
        let role = match &*name {
            "response.completed" | "response.incomplete" => Role::Terminal,
            _ => Role::Event,
        };
        self.out.frames.push(Frame { event: Some(name), data: event.to_string(), role });
    }
}

impl TurnWriter for Writer {
    fn output(&mut self) -> &mut Output {
        &mut self.out
    }

    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), Unsupported> {
        match delta {
            ContentDelta::Text(piece) => {
                self.open(index, Kind::Text.open());
                self.piece(&piece);
            }
            ContentDelta::Refusal(piece) => {
                self.refused = true;
                self.open(index, Kind::Refusal.open());
                self.piece(&piece);
            }
            ContentDelta::Reasoning(kind, piece) => {
                self.open(index, Kind::Reasoning(kind).open());
                self.piece(&piece);
            }
            ContentDelta::Sign(Signed::Reasoning, signature) => {
                if let Some((_, open)) = &mut self.open {
                    open.signature = Some(signature);
                }
            }
            ContentDelta::Sign(..) => return Err("a signature of text or of a call"),
            ContentDelta::Hidden(data) => {
                self.close();
                let hidden = Kind::Reasoning(ReasoningKind::Summary).open();
                let mut item = hidden.item(&self.id, index, Status::Completed);
                self.encrypt(&mut item, Some(data));
                self.event("response.output_item.added", json!({ "item": item }));
                self.finish(item);
            }
            ContentDelta::CallStart { call_id: id, name } => {
                let call_id = call_id("call", id, &self.id, index);
                self.open(index, Kind::Call { call_id, name }.open());
            }
            ContentDelta::CallArgs(piece) => self.piece(&piece),
            ContentDelta::CallEnd => self.close(),
        }
        Ok(())
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), Unsupported> {
        let (name, why) = match reason {
            StopReason::Stop | StopReason::ToolCalls => ("response.completed", None),
            // The vendor's refusals are complete.
            StopReason::Refusal if self.refused => ("response.completed", None),
            StopReason::MaxTokens => ("response.incomplete", Some("max_output_tokens")),
            StopReason::ContentFilter => ("response.incomplete", Some("content_filter")),
            StopReason::Other(raw) => ("response.incomplete", Some(raw.as_str())),
            StopReason::Refusal => return Err("a refusal without words (see `Reply::refuse`)"),
            StopReason::Pause => return Err("a pause"),
            StopReason::ContextWindow => return Err("the end of the context window"),
        };
        // A call that was not written to its end stands in the response, and nowhere says `done`.
        match self.open.take() {
            Some((index, open)) if open.is_call() => {
                let item = open.item(&self.id, index, Status::Incomplete);
                self.output.push(item);
            }
            open => {
                self.open = open;
                self.close();
            }
        }
        let mut response = self.response.clone();
        response["status"] = if why.is_some() { "incomplete" } else { "completed" }.into();
        response["incomplete_details"] = why.map(|reason| json!({ "reason": reason })).into();
        response["output"] = self.output.clone().into();
        response["usage"] = openai_errors::usage(usage, "input_tokens", "output_tokens");
        self.event(name, json!({ "response": response }));
        Ok(())
    }
}
