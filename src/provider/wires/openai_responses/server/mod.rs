//! The server side of the `OpenAI` Responses API,
//! <https://platform.openai.com/docs/api-reference/responses-streaming>.

mod item;

use std::borrow::Cow;

use serde_json::{Value, json};

use self::item::{ItemStatus, OpenItem, OutputItemKind};
use crate::item::StopReason;
use crate::provider::codec::content_delta::{ContentDelta, SignatureTarget};
use crate::provider::server::{
    Frame, NUMBER_MARK, REFUSAL_WITHOUT_TEXT, ServerWire, SignFn, TEXT_MARK, TextFrame,
    TextTemplate, TurnStart, UnsupportedContent, WireWriter, WriterOutput, call_id_or_generated,
    openai_errors,
};
use crate::turn::ReasoningKind;
use crate::usage::Usage;

pub(in crate::provider) const SERVER_WIRE: ServerWire = ServerWire {
    ping: |n| {
        let event = json!({ "type": "keepalive", "sequence_number": n });
        Some(Frame::new(Some("keepalive"), &event))
    },
    error_frame,
    request_id_header: Some(openai_errors::REQUEST_ID_HEADER),
    ..ServerWire::new("openai_responses", ResponseWriter::start, |error, _| {
        openai_errors::error_body(error, "context window")
    })
};

/// Creates the frame that reports an error within a stream. `OpenAI` uses one format for errors
/// before the output starts, and another for errors after it has started.
fn error_frame(body: &Value, n: usize) -> Frame {
    let [code, message, param] = ["code", "message", "param"].map(|name| &body["error"][name]);
    match n {
        0..=2 => Frame::new(
            Some("error"),
            &json!({
                "type": "error", "code": code, "message": message, "param": param,
                "sequence_number": n,
            }),
        ),
        _ => Frame::new(
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

struct ResponseWriter {
    out: WriterOutput,
    /// The number of frames written so far.
    frame_count: usize,
    id: String,
    /// The response without its output, as sent in every lifecycle event.
    response: Value,
    /// Whether the request asks for encrypted reasoning, which is not included by default.
    encrypts_reasoning: bool,
    sign: SignFn,
    open_item: Option<(u32, OpenItem)>,
    output_items: Vec<Value>,
    /// The id of the last reasoning item, if it has not yet been followed by another item.
    pending_reasoning_id: Option<String>,
    has_refusal: bool,
}

impl ResponseWriter {
    fn start(start: TurnStart<'_>) -> Box<dyn WireWriter> {
        let body = start.request;
        let or = |field: &str, usual: Value| match &body[field] {
            Value::Null => usual,
            given => given.clone(),
        };
        let response = json!({
            "id": format!("resp_{}", start.id),
            "object": "response",
            "created_at": start.created_at,
            "status": "in_progress",
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": body["instructions"],
            "max_output_tokens": body["max_output_tokens"],
            "model": start.model,
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
            out: WriterOutput::default(),
            id: start.id.to_owned(),
            response,
            frame_count: 0,
            encrypts_reasoning: body["include"].as_array().is_some_and(|values| {
                values.iter().any(|word| word == "reasoning.encrypted_content")
            }),
            sign: start.sign,
            open_item: None,
            output_items: Vec::new(),
            pending_reasoning_id: None,
            has_refusal: false,
        };
        for name in ["response.created", "response.in_progress"] {
            writer.write_event(name, json!({ "response": writer.response }));
        }
        Box::new(writer)
    }

    /// Opens an item, unless it is already open.
    fn open_item(&mut self, index: u32, open: OpenItem) {
        if self.open_item.as_ref().is_some_and(|(at, _)| *at == index) {
            return;
        }
        self.close_item();
        let item = open.item_json(&self.id, index, ItemStatus::InProgress);
        self.write_event("response.output_item.added", json!({ "item": item }));
        if let Some((part, _)) = open.part_event_and_index_field() {
            let added = self.item_event(index, &open, "part", &open.part_json(""));
            self.write_event(format!("{part}.added"), added);
        }
        self.open_item = Some((index, open));
    }

    fn close_item(&mut self) {
        let Some((index, open)) = self.open_item.take() else { return };
        let mut item = open.item_json(&self.id, index, ItemStatus::Completed);
        let done = self.item_event(index, &open, open.text_field(), &json!(open.text));
        self.write_event(format!("{}.done", open.text_event_prefix()), done);
        if let Some((part, _)) = open.part_event_and_index_field() {
            let done = self.item_event(index, &open, "part", &open.part_json(&open.text));
            self.write_event(format!("{part}.done"), done);
        }
        if open.is_reasoning() {
            self.encrypt_reasoning(&mut item, open.signature);
        }
        self.finish_item(item);
    }

    /// Writes an item's end event.
    fn finish_item(&mut self, item: Value) {
        let id = item["id"].as_str().unwrap_or_default();
        if item["type"] == "reasoning" {
            self.pending_reasoning_id = Some(id.to_owned());
        } else if let Some(reasoning) = self.pending_reasoning_id.take() {
            self.out.record_required_reasoning(id, reasoning);
        }
        self.write_event("response.output_item.done", json!({ "item": item }));
        self.output_items.push(item);
    }

    /// Adds encrypted content to a reasoning item: "`encrypted_content` is populated when a
    /// response is generated with `reasoning.encrypted_content` in the include parameter".
    fn encrypt_reasoning(&mut self, item: &mut Value, own: Option<String>) {
        let id = item["id"].as_str().unwrap_or_default();
        if self.encrypts_reasoning
            && let Some(encrypted) = own.or_else(|| (self.sign)(id))
        {
            self.out.record_signature(&encrypted, id);
            item["encrypted_content"] = encrypted.into();
        }
    }

    /// Writes a piece of the currently open item.
    fn write_piece(&mut self, piece: &str) {
        let Some((index, mut open)) = self.open_item.take() else { return };
        open.text.push_str(piece);
        let frames = self.piece_frames(open.text_event_prefix());
        let template = self.out.take_template(frames).unwrap_or_else(|| {
            let delta = self.item_event(index, &open, "delta", &json!(TEXT_MARK));
            let name = format!("{}.delta", open.text_event_prefix());
            TextTemplate::of(self.event_frame(name.into(), delta, NUMBER_MARK))
        });
        self.out.push_text(frames, template, piece, self.frame_count);
        self.frame_count += 1;
        self.open_item = Some((index, open));
    }

    /// Identifies the frames with pieces of the open item, which have the same position among the
    /// items.
    fn piece_frames(&self, text_event_prefix: &'static str) -> TextFrame {
        (text_event_prefix, u32::try_from(self.output_items.len()).unwrap_or(u32::MAX))
    }

    /// Returns the data of an event for an open item or for its only part.
    fn item_event(&self, index: u32, open: &OpenItem, field: &str, value: &Value) -> Value {
        let mut event = json!({
            "item_id": open.id(&self.id, index), "output_index": self.output_items.len(), field: value,
        });
        if let Some((_, part_index)) = open.part_event_and_index_field() {
            event[part_index] = 0.into();
        }
        event
    }

    fn write_event(&mut self, name: impl Into<Cow<'static, str>>, event: Value) {
        let frame = self.event_frame(name.into(), event, self.frame_count);
        self.frame_count += 1;
        self.out.push(frame);
    }

    fn event_frame(&self, name: Cow<'static, str>, mut event: Value, number: usize) -> Frame {
        if event.get("item").is_some() {
            event["output_index"] = self.output_items.len().into();
        }
        event["type"] = (*name).into();
        event["sequence_number"] = number.into();
        Frame { event: Some(name), ..Frame::new(None, &event) }
    }
}

impl WireWriter for ResponseWriter {
    fn output(&mut self) -> &mut WriterOutput {
        &mut self.out
    }

    fn continue_text(&mut self, index: u32, text: &str) -> Option<usize> {
        let (at, open) = self.open_item.as_ref()?;
        let frames = self.piece_frames(open.text_event_prefix());
        if *at != index || !self.out.continues(frames) {
            return None;
        }
        let (_, open) = self.open_item.as_mut()?;
        open.text.push_str(text);
        self.frame_count += 1;
        Some(self.frame_count - 1)
    }

    fn write(&mut self, index: u32, delta: ContentDelta) -> Result<(), UnsupportedContent> {
        match delta {
            ContentDelta::Text(piece) => {
                self.open_item(index, OutputItemKind::Text.into_open_item());
                self.write_piece(&piece);
            }
            ContentDelta::Refusal(piece) => {
                self.has_refusal = true;
                self.open_item(index, OutputItemKind::Refusal.into_open_item());
                self.write_piece(&piece);
            }
            ContentDelta::Reasoning(kind, piece) => {
                self.open_item(index, OutputItemKind::Reasoning(kind).into_open_item());
                self.write_piece(&piece);
            }
            ContentDelta::Signature(SignatureTarget::Reasoning, signature) => {
                if let Some((_, open)) = &mut self.open_item {
                    open.signature = Some(signature);
                }
            }
            ContentDelta::Signature(..) => return Err("a signature of text or of a call"),
            ContentDelta::HiddenReasoning(data) => {
                self.close_item();
                let hidden = OutputItemKind::Reasoning(ReasoningKind::Summary).into_open_item();
                let mut item = hidden.item_json(&self.id, index, ItemStatus::Completed);
                self.encrypt_reasoning(&mut item, Some(data));
                self.write_event("response.output_item.added", json!({ "item": item }));
                self.finish_item(item);
            }
            ContentDelta::CallStart { call_id: id, name } => {
                let call_id = call_id_or_generated("call", id, &self.id, index);
                self.open_item(index, OutputItemKind::Call { call_id, name }.into_open_item());
            }
            ContentDelta::CallArgs(piece) => self.write_piece(&piece),
            ContentDelta::CallEnd => self.close_item(),
        }
        Ok(())
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), UnsupportedContent> {
        let (name, why) = match reason {
            StopReason::Stop | StopReason::ToolCalls => ("response.completed", None),
            // `OpenAI` reports a refusal as completed.
            StopReason::Refusal if self.has_refusal => ("response.completed", None),
            StopReason::MaxTokens => ("response.incomplete", Some("max_output_tokens")),
            StopReason::ContentFilter => ("response.incomplete", Some("content_filter")),
            StopReason::Other(raw) => ("response.incomplete", Some(raw.as_str())),
            StopReason::Refusal => return Err(REFUSAL_WITHOUT_TEXT),
            StopReason::Pause => return Err("a pause"),
            StopReason::ContextWindow => return Err("the end of the context window"),
            StopReason::Interrupted => return Err("an interrupted turn"),
        };
        // A call with truncated arguments is part of the response, but no `done` event is sent for
        // it.
        match self.open_item.take() {
            Some((index, open)) if open.is_call() => {
                let item = open.item_json(&self.id, index, ItemStatus::Incomplete);
                self.output_items.push(item);
            }
            open => {
                self.open_item = open;
                self.close_item();
            }
        }
        let mut response = self.response.clone();
        response["status"] = if why.is_some() { "incomplete" } else { "completed" }.into();
        response["incomplete_details"] = why.map(|reason| json!({ "reason": reason })).into();
        response["output"] = self.output_items.clone().into();
        response["usage"] = openai_errors::usage_json(usage, "input_tokens", "output_tokens");
        self.write_event(name, json!({ "response": response }));
        Ok(())
    }
}
