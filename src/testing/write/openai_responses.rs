//! `OpenAI` Responses, <https://platform.openai.com/docs/api-reference/responses-streaming>.

use serde_json::{Value, json};

use super::{Frame, Role, Step, Unsayable, Write, call_id, cannot};
use crate::item::StopReason;
use crate::provider::{Move, Signed};
use crate::testing::proof::{Proofs, sign};
use crate::testing::{Asked, Wire};
use crate::turn::ReasoningKind;
use crate::usage::Usage;

pub(super) struct Writer<'a> {
    out: Vec<Step>,
    n: usize,
    /// The response without its output, as every event of its life has it.
    response: Value,
    /// Whether the request asks for encrypted reasoning: nobody gets it unasked.
    encrypts: bool,
    open: Option<(u32, Open)>,
    output: Vec<Value>,
    /// The reasoning item that nothing has followed yet.
    reasoned: Option<String>,
    refused: bool,
    proofs: &'a mut Proofs,
}

/// The item that is open.
enum Open {
    Said { part: SaidPart, text: String },
    Reasoning { kind: ReasoningKind, text: String, signature: Option<String> },
    Call { call_id: String, name: String, arguments: String },
}

#[derive(Clone, Copy, PartialEq)]
enum SaidPart {
    OutputText,
    Refusal,
}

impl SaidPart {
    /// Its delta event, its done event, and the field of its words there.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::OutputText => ("response.output_text.delta", "response.output_text.done", "text"),
            Self::Refusal => ("response.refusal.delta", "response.refusal.done", "refusal"),
        }
    }

    fn part(self, text: &str) -> Value {
        match self {
            Self::OutputText => {
                json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
            }
            Self::Refusal => json!({ "type": "refusal", "refusal": text }),
        }
    }
}

impl<'a> Writer<'a> {
    pub(super) fn new(asked: &Asked, proofs: &'a mut Proofs) -> Self {
        let body = &asked.body;
        let or = |field: &str, usual: Value| match &body[field] {
            Value::Null => usual,
            given => given.clone(),
        };
        let response = json!({
            "id": format!("resp_{:04}", asked.n),
            "object": "response",
            "created_at": super::CREATED,
            "status": "in_progress",
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": body["instructions"],
            "max_output_tokens": body["max_output_tokens"],
            "model": asked.model,
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
            out: Vec::new(),
            n: asked.n,
            response,
            encrypts: asked.lists("include", "reasoning.encrypted_content"),
            open: None,
            output: Vec::new(),
            reasoned: None,
            refused: false,
            proofs,
        };
        for name in ["response.created", "response.in_progress"] {
            let response = writer.response.clone();
            writer.event(name, json!({ "response": response }));
        }
        writer
    }

    /// The id of the item that is open.
    fn id(&self, prefix: &str, index: u32) -> String {
        format!("{prefix}_{:04}_{index}", self.n)
    }

    /// Opens an item unless it is open.
    fn open(&mut self, index: u32, open: Open) {
        if self.open.as_ref().is_some_and(|(at, _)| *at == index) {
            return;
        }
        self.close();
        let item = self.item(index, &open, "in_progress");
        self.event("response.output_item.added", json!({ "item": item }));
        let (id, at) = (item["id"].clone(), self.output.len());
        let (name, place, part) = match &open {
            Open::Said { part, .. } => {
                ("response.content_part.added", "content_index", part.part(""))
            }
            Open::Reasoning { kind: ReasoningKind::Summary, .. } => (
                "response.reasoning_summary_part.added",
                "summary_index",
                json!({ "type": "summary_text", "text": "" }),
            ),
            Open::Reasoning { kind: ReasoningKind::Trace, .. } => (
                "response.content_part.added",
                "content_index",
                json!({ "type": "reasoning_text", "text": "" }),
            ),
            Open::Call { .. } => ("", "", Value::Null),
        };
        if !name.is_empty() {
            self.event(name, json!({ "item_id": id, "output_index": at, place: 0, "part": part }));
        }
        self.open = Some((index, open));
    }

    /// An item as it is so far.
    fn item(&self, index: u32, open: &Open, status: &str) -> Value {
        let begun = status == "in_progress";
        match open {
            Open::Said { part, text } => json!({
                "id": self.id("msg", index),
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": if begun { vec![] } else { vec![part.part(text)] },
            }),
            Open::Reasoning { kind, text, .. } => {
                let mut item = json!({
                    "id": self.id("rs", index), "type": "reasoning", "summary": [],
                });
                let (list, part) = match kind {
                    ReasoningKind::Summary => ("summary", "summary_text"),
                    ReasoningKind::Trace => ("content", "reasoning_text"),
                };
                if !begun && !text.is_empty() {
                    item[list] = json!([{ "type": part, "text": text }]);
                }
                item
            }
            Open::Call { call_id, name, arguments } => json!({
                "id": self.id("fc", index),
                "type": "function_call",
                "status": status,
                "call_id": call_id,
                "name": name,
                "arguments": arguments,
            }),
        }
    }

    fn close(&mut self) {
        let Some((index, open)) = self.open.take() else { return };
        let mut item = self.item(index, &open, "completed");
        let (id, at) = (item["id"].clone(), self.output.len());
        let done = |place: &str, field: &str, value: Value| json!({ "item_id": id, "output_index": at, place: 0, field: value });
        match &open {
            Open::Said { part, text } => {
                let (_, name, field) = part.names();
                self.event(name, done("content_index", field, text.as_str().into()));
                let part = part.part(text);
                self.event("response.content_part.done", done("content_index", "part", part));
            }
            Open::Reasoning { kind: ReasoningKind::Summary, text, .. } => {
                let name = "response.reasoning_summary_text.done";
                self.event(name, done("summary_index", "text", text.as_str().into()));
                let part = json!({ "type": "summary_text", "text": text });
                let name = "response.reasoning_summary_part.done";
                self.event(name, done("summary_index", "part", part));
            }
            Open::Reasoning { kind: ReasoningKind::Trace, text, .. } => {
                let name = "response.reasoning_text.done";
                self.event(name, done("content_index", "text", text.as_str().into()));
                let part = json!({ "type": "reasoning_text", "text": text });
                self.event("response.content_part.done", done("content_index", "part", part));
            }
            Open::Call { arguments, .. } => self.event(
                "response.function_call_arguments.done",
                json!({ "item_id": id, "output_index": at, "arguments": arguments }),
            ),
        }
        if let Open::Reasoning { signature, .. } = open {
            self.encrypt(&mut item, signature);
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
            self.proofs.follows(&id, &reasoning);
        }
        self.output.push(item);
    }

    /// "encrypted_content is populated when a response is generated with
    /// reasoning.encrypted_content in the include parameter"
    fn encrypt(&mut self, item: &mut Value, scripted: Option<String>) {
        if self.encrypts {
            let id = item["id"].as_str().unwrap_or_default();
            let encrypted = scripted.unwrap_or_else(|| sign(id));
            self.proofs.give(&encrypted, id);
            item["encrypted_content"] = encrypted.into();
        }
    }

    fn delta(&mut self, name: &'static str, place: Option<&str>, prefix: &str, piece: &str) {
        let Some((index, _)) = &self.open else { return };
        let mut event = json!({
            "item_id": self.id(prefix, *index), "output_index": self.output.len(), "delta": piece,
        });
        if let Some(place) = place {
            event[place] = 0.into();
        }
        self.event(name, event);
    }

    fn event(&mut self, name: &'static str, mut event: Value) {
        if event.get("item").is_some() {
            event["output_index"] = self.output.len().into();
        }
        event["type"] = name.into();
        // Frames are all that is numbered, from 0.
        let frames = self.out.iter().filter(|step| matches!(step, Step::Frame(_))).count();
        event["sequence_number"] = frames.into();
        let role = match name {
            "response.completed" | "response.incomplete" => Role::Terminal,
            _ => Role::Event,
        };
        self.out.push(Step::Frame(Frame { event: Some(name), data: event.to_string(), role }));
    }
}

impl Write for Writer<'_> {
    const WIRE: Wire = Wire::OpenAiResponses;

    fn out(&mut self) -> &mut Vec<Step> {
        &mut self.out
    }

    fn say(&mut self, said: Move) -> Result<(), Unsayable> {
        match said {
            Move::Text { index, piece } => self.speak(index, SaidPart::OutputText, &piece),
            Move::Refusal { index, piece } => {
                self.refused = true;
                self.speak(index, SaidPart::Refusal, &piece);
            }
            Move::Reasoning { index, piece, kind } => {
                self.open(index, Open::Reasoning { kind, text: String::new(), signature: None });
                if let Some((_, Open::Reasoning { text, .. })) = &mut self.open {
                    text.push_str(&piece);
                }
                let (name, place) = match kind {
                    ReasoningKind::Summary => {
                        ("response.reasoning_summary_text.delta", "summary_index")
                    }
                    ReasoningKind::Trace => ("response.reasoning_text.delta", "content_index"),
                };
                self.delta(name, Some(place), "rs", &piece);
            }
            Move::Sign { of: Signed::Reasoning, signature, .. } => {
                if let Some((_, Open::Reasoning { signature: scripted, .. })) = &mut self.open {
                    *scripted = Some(signature);
                }
            }
            Move::Sign { .. } => {
                return Err(cannot(Self::WIRE, "a signature of text or of a call"));
            }
            Move::Hidden { index, data } => {
                self.close();
                let kind = ReasoningKind::Summary;
                let hidden = Open::Reasoning { kind, text: String::new(), signature: None };
                let mut item = self.item(index, &hidden, "completed");
                self.encrypt(&mut item, Some(data));
                self.event("response.output_item.added", json!({ "item": item }));
                self.finish(item);
            }
            Move::CallStart { index, call_id: id, name } => {
                let call_id = call_id("call", id, self.n, index);
                self.open(index, Open::Call { call_id, name, arguments: String::new() });
            }
            Move::CallArgs { piece, .. } => {
                if let Some((_, Open::Call { arguments, .. })) = &mut self.open {
                    arguments.push_str(&piece);
                }
                self.delta("response.function_call_arguments.delta", None, "fc", &piece);
            }
            Move::CallEnd { .. } => self.close(),
            _ => {}
        }
        Ok(())
    }

    fn stop(&mut self, reason: &StopReason, usage: Usage) -> Result<(), Unsayable> {
        let (name, why) = match reason {
            StopReason::Stop | StopReason::ToolCalls => ("response.completed", None),
            // The vendor's refusals are complete.
            StopReason::Refusal if self.refused => ("response.completed", None),
            StopReason::MaxTokens => ("response.incomplete", Some("max_output_tokens")),
            StopReason::ContentFilter => ("response.incomplete", Some("content_filter")),
            StopReason::Other(raw) => ("response.incomplete", Some(raw.as_str())),
            StopReason::Refusal => {
                return Err(cannot(Self::WIRE, "a refusal without words (see `Reply::refuse`)"));
            }
            StopReason::Pause => return Err(cannot(Self::WIRE, "a pause")),
            StopReason::ContextWindow => {
                return Err(cannot(Self::WIRE, "the end of the context window"));
            }
        };
        // A call that was not written to its end stands in the response, and nowhere says `done`.
        match self.open.take() {
            Some((index, open @ Open::Call { .. })) => {
                let item = self.item(index, &open, "incomplete");
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
        response["usage"] = json!({
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cache_read_input_tokens,
                "cache_write_tokens": usage.cache_write_input_tokens,
            },
            "output_tokens": usage.output_tokens,
            "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
            "total_tokens": usage.total(),
        });
        self.event(name, json!({ "response": response }));
        Ok(())
    }
}

impl Writer<'_> {
    fn speak(&mut self, index: u32, part: SaidPart, piece: &str) {
        self.open(index, Open::Said { part, text: String::new() });
        if let Some((_, Open::Said { text, .. })) = &mut self.open {
            text.push_str(piece);
        }
        let (name, _, _) = part.names();
        self.delta(name, Some("content_index"), "msg", piece);
    }
}
