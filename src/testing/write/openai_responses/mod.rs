//! `OpenAI` Responses, <https://platform.openai.com/docs/api-reference/responses-streaming>.

mod item;

use serde_json::{Value, json};

use self::item::{Open, Status};
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

    /// Opens an item unless it is open.
    fn open(&mut self, index: u32, open: Open) {
        if self.open.as_ref().is_some_and(|(at, _)| *at == index) {
            return;
        }
        self.close();
        let item = open.item(self.n, index, Status::InProgress);
        self.event("response.output_item.added", json!({ "item": item }));
        let (id, at) = (item["id"].clone(), self.output.len());
        if let Some((name, place)) = open.part_added() {
            let part = open.part("");
            self.event(name, json!({ "item_id": id, "output_index": at, place: 0, "part": part }));
        }
        self.open = Some((index, open));
    }

    fn close(&mut self) {
        let Some((index, open)) = self.open.take() else { return };
        let mut item = open.item(self.n, index, Status::Completed);
        let (id, at) = (item["id"].clone(), self.output.len());
        match open.part_done() {
            Some([(text_done, field), (part_done, place)]) => {
                let done = |field: &str, value: Value| json!({ "item_id": id, "output_index": at, place: 0, field: value });
                self.event(text_done, done(field, open.written().into()));
                self.event(part_done, done("part", open.part(open.written())));
            }
            None => self.event(
                "response.function_call_arguments.done",
                json!({ "item_id": id, "output_index": at, "arguments": open.written() }),
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

    /// "`encrypted_content` is populated when a response is generated with
    /// `reasoning.encrypted_content` in the include parameter"
    fn encrypt(&mut self, item: &mut Value, scripted: Option<String>) {
        if self.encrypts {
            let id = item["id"].as_str().unwrap_or_default();
            let encrypted = scripted.unwrap_or_else(|| sign(id));
            self.proofs.give(&encrypted, id);
            item["encrypted_content"] = encrypted.into();
        }
    }

    /// A piece of what is open.
    fn piece(&mut self, piece: &str) {
        let Some((index, open)) = &mut self.open else { return };
        open.write(piece);
        let (name, place) = open.delta();
        let mut event = json!({
            "item_id": open.id(self.n, *index), "output_index": self.output.len(), "delta": piece,
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
            Move::Text { index, piece } => {
                self.open(index, Open::Text(String::new()));
                self.piece(&piece);
            }
            Move::Refusal { index, piece } => {
                self.refused = true;
                self.open(index, Open::Refusal(String::new()));
                self.piece(&piece);
            }
            Move::Reasoning { index, piece, kind } => {
                self.open(index, Open::Reasoning { kind, text: String::new(), signature: None });
                self.piece(&piece);
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
                let mut item = hidden.item(self.n, index, Status::Completed);
                self.encrypt(&mut item, Some(data));
                self.event("response.output_item.added", json!({ "item": item }));
                self.finish(item);
            }
            Move::CallStart { index, call_id: id, name } => {
                let call_id = call_id("call", id, self.n, index);
                self.open(index, Open::Call { call_id, name, arguments: String::new() });
            }
            Move::CallArgs { piece, .. } => self.piece(&piece),
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
                let item = open.item(self.n, index, Status::Incomplete);
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
