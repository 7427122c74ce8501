//! From frames to a turn.

use serde_json::value::{RawValue, to_raw_value};

use super::wire::{Block as WireBlock, Counted, Delta, Event, Message};
use crate::error::{Error, ErrorKind};
use crate::item::{Json, ProviderData, StopReason};
use crate::provider::decode::{Decode, Heard};
use crate::provider::failure;
use crate::provider::fields::Fields;
use crate::provider::lenient::Str;
use crate::sse::Frame;
use crate::turn::{ReasoningKind, TurnBuilder};

/// Reads the events of the Anthropic Messages wire. Pure: it does no I/O.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The model that was asked: what it signs is bound to this name.
    model: String,
    message_id: Option<String>,
    counted: Counted,
    blocks: Vec<(u64, Block)>,
}

/// A block that has begun and not ended.
#[derive(Debug)]
enum Block {
    Text {
        citations: Vec<Json>,
    },
    Thinking {
        signature: String,
    },
    ToolUse {
        /// The input that the start held; deltas win over it.
        input: Option<String>,
        deltas: bool,
    },
    /// The provider's own: kept as it began, with what its deltas added.
    Own {
        began: Json,
        input: String,
        content: String,
        citations: Vec<Json>,
    },
}

impl Decoder {
    /// Makes a decoder for the answer of a model.
    pub fn new(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }

    fn message_start(
        &mut self,
        message: &Message<'_>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let id = message.id.or_empty();
        match &self.message_id {
            Some(open) if open != id => {
                let message = "a second message began inside the first";
                return Err(Error::new(ErrorKind::Protocol, message));
            }
            Some(_) => return Ok(()),
            None => self.message_id = Some(id.to_owned()),
        }
        turn.provider(super::NAME);
        turn.response_id(id);
        turn.model(message.model.or_empty());
        if let Some(usage) = &message.usage.0 {
            self.counted.replace(**usage);
            turn.usage(self.counted.usage());
        }
        let content = message.content.map_or("[]", RawValue::get);
        for (index, block) in
            (0..).zip(serde_json::from_str::<Vec<&RawValue>>(content).unwrap_or_default())
        {
            self.block_start(index, block, turn)?;
            self.block_stop(index, turn);
        }
        stop(&message.stop_reason, turn);
        Ok(())
    }

    fn block_start(
        &mut self,
        index: u64,
        raw: &RawValue,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        // What is no object is no block.
        let mut room = String::new();
        let read = crate::provider::lenient::read::<WireBlock<'_>>(raw.get(), &mut room);
        let Ok(block) = read else { return Ok(()) };
        let key = key(index);
        let begun = match block.r#type.or_empty() {
            "text" => {
                turn.text(key, block.text.or_empty());
                let citations = block.citations.map_or("[]", RawValue::get);
                let citations =
                    serde_json::from_str::<Vec<&RawValue>>(citations).unwrap_or_default();
                Block::Text { citations: citations.into_iter().filter_map(json).collect() }
            }
            "thinking" => {
                turn.reasoning(key, block.thinking.or_empty(), ReasoningKind::Trace);
                Block::Thinking { signature: block.signature.or_empty().to_owned() }
            }
            "redacted_thinking" => {
                if let Some(data) = json(raw).map(|value| self.data(value)) {
                    turn.reasoning_data(key, data);
                }
                return Ok(());
            }
            "tool_use" if block.name.or_empty().is_empty() => {
                return Err(Error::new(ErrorKind::Protocol, "a tool call has no name"));
            }
            "tool_use" => {
                turn.tool_call_start(key, block.id.or_empty(), block.name.or_empty());
                if let Some(caller) = block.caller.and_then(json) {
                    let value = serde_json::json!({ "caller": caller.to_value() });
                    turn.tool_call_data(key, self.data(value.into()));
                }
                let input = block.input.map(RawValue::get);
                let input = input.filter(|input| !matches!(*input, "null" | "{}"));
                Block::ToolUse { input: input.map(str::to_owned), deltas: false }
            }
            _ => {
                let Some(began) = json(raw) else { return Ok(()) };
                let (input, content) = (String::new(), String::new());
                Block::Own { began, input, content, citations: Vec::new() }
            }
        };
        self.blocks.retain(|(open, _)| *open != index);
        self.blocks.push((index, begun));
        Ok(())
    }

    fn block_delta(
        &mut self,
        index: u64,
        delta: &Delta<'_>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let open = self.blocks.iter_mut().rfind(|(open, _)| *open == index);
        let kind = match delta.r#type.or_empty() {
            "" if delta.partial_json.get().is_some() => "input_json_delta",
            kind => kind,
        };
        // Without the whole of its arguments it is not known what a call is.
        let fits = matches!(&open, Some((_, Block::ToolUse { .. } | Block::Own { .. })));
        if kind == "input_json_delta" && (!fits || delta.partial_json.get().is_none()) {
            let message = "a piece of a tool call's input belongs to no call, or is no text";
            return Err(Error::new(ErrorKind::Protocol, message));
        }
        // A delta of a block that never began: its proxy lost the start.
        let Some((_, block)) = open else { return Ok(()) };
        let key = key(index);
        match (kind, block) {
            ("text_delta", Block::Text { .. }) => turn.text(key, delta.text.or_empty()),
            ("thinking_delta", Block::Thinking { .. }) => {
                turn.reasoning(key, delta.thinking.or_empty(), ReasoningKind::Trace);
            }
            ("signature_delta", Block::Thinking { signature }) => {
                signature.push_str(delta.signature.or_empty());
            }
            ("input_json_delta", Block::ToolUse { deltas, .. }) => {
                *deltas |= !delta.partial_json.or_empty().is_empty();
                turn.tool_call_args(key, delta.partial_json.or_empty());
            }
            ("input_json_delta", Block::Own { input, .. }) => {
                input.push_str(delta.partial_json.or_empty());
            }
            ("compaction_delta", Block::Own { content, .. }) => {
                content.push_str(delta.content.or_empty());
            }
            ("citations_delta", Block::Text { citations } | Block::Own { citations, .. }) => {
                citations.extend(delta.citation.and_then(json));
            }
            // New kinds of deltas may come (docs: "handle unknown event types gracefully").
            _ => {}
        }
        Ok(())
    }

    fn block_stop(&mut self, index: u64, turn: &mut TurnBuilder) {
        let Some(at) = self.blocks.iter().rposition(|(open, _)| *open == index) else { return };
        let (_, block) = self.blocks.remove(at);
        let key = key(index);
        match block {
            Block::Text { citations } if citations.is_empty() => {}
            Block::Text { citations } => {
                if let Ok(value) = Json::new(&serde_json::json!({ "citations": citations })) {
                    turn.text_data(key, self.data(value));
                }
            }
            Block::Thinking { signature } => {
                if !signature.is_empty() {
                    let value = serde_json::json!({ "signature": signature });
                    turn.reasoning_data(key, self.data(value.into()));
                }
            }
            Block::ToolUse { input, deltas } => {
                if let Some(input) = input.filter(|_| !deltas) {
                    turn.tool_call_args(key, &input);
                }
                turn.tool_call_end(key);
            }
            Block::Own { began, input, content, citations } => {
                let value = with_deltas(&began, &input, &content, &citations);
                turn.other(self.data(value));
            }
        }
    }

    fn data(&self, value: Json) -> ProviderData {
        ProviderData { provider: super::NAME.to_owned(), model: self.model.clone(), value }
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<Heard, Error> {
        // A kind of event that this reader does not know, and what keeps the connection alive, may
        // hold anything; `[DONE]` comes from proxies.
        let known = frame.event == "message"
            || frame.event == "error"
            || frame.event.starts_with("message_")
            || frame.event.starts_with("content_block_");
        if !known || matches!(frame.data.trim(), "" | "[DONE]") {
            return Ok(Heard::More);
        }
        let mut room = String::new();
        let event: Event<'_> =
            crate::provider::lenient::read(frame.data, &mut room).map_err(|error| {
                Error::new(ErrorKind::Protocol, format!("an event is not JSON: {error}"))
                    .with_source(error)
            })?;
        let index = event.index.0.unwrap_or_default();
        match event.r#type.get().unwrap_or(frame.event) {
            "content_block_delta" => {
                if let Some(delta) = &event.delta.0 {
                    self.block_delta(index, delta, turn)?;
                }
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.block_start(index, block, turn)?;
                }
            }
            "content_block_stop" => self.block_stop(index, turn),
            "message_start" => {
                if let Some(message) = &event.message.0 {
                    self.message_start(message, turn)?;
                }
            }
            "message_delta" => {
                if let Some(usage) = &event.usage.0 {
                    self.counted.replace(**usage);
                    turn.usage(self.counted.usage());
                }
                if let Some(delta) = &event.delta.0 {
                    stop(&delta.stop_reason, turn);
                }
            }
            "message_stop" => {
                if !turn.is_stopped() {
                    turn.stop(StopReason::Other("message_stop".to_owned()), "");
                }
                return Ok(Heard::LastWord);
            }
            "error" => return Err(failure::in_stream(frame.data)),
            "message" if event.error.is_some() => return Err(failure::in_stream(frame.data)),
            // `ping`, and whatever comes with a later version.
            _ => {}
        }
        Ok(Heard::More)
    }

    /// Blocks of the provider's own that never ended are incomplete; they are left out.
    fn finish(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        let open: Vec<u64> = self
            .blocks
            .iter()
            .filter(|(_, block)| matches!(block, Block::Text { .. } | Block::Thinking { .. }))
            .map(|(index, _)| *index)
            .collect();
        for index in open {
            self.block_stop(index, turn);
        }
        Ok(())
    }
}

fn stop(reason: &Str<'_>, turn: &mut TurnBuilder) {
    let Some(raw) = reason.get().filter(|raw| !raw.is_empty()) else { return };
    let reason = match raw {
        "end_turn" | "stop_sequence" => StopReason::Stop,
        "tool_use" => StopReason::ToolCalls,
        "max_tokens" => StopReason::MaxTokens,
        "pause_turn" => StopReason::Pause,
        "refusal" => StopReason::Refusal,
        "model_context_window_exceeded" => StopReason::ContextWindow,
        "sensitive" => StopReason::ContentFilter,
        other => StopReason::Other(other.to_owned()),
    };
    turn.stop(reason, raw);
}

/// The index of a block as a key; no message has as many blocks.
fn key(index: u64) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn json(raw: &RawValue) -> Option<Json> {
    Json::parse(raw.get()).ok()
}

/// A block of the provider's own, with what its deltas added put where it belongs. The order of
/// its keys stays.
fn with_deltas(began: &Json, input: &str, content: &str, citations: &[Json]) -> Json {
    if input.is_empty() && content.is_empty() && citations.is_empty() {
        return began.clone();
    }
    let Some(mut fields) = Fields::parse(began.as_str()) else { return began.clone() };
    // An input that was cut off is kept as the text it is.
    let input = (!input.is_empty())
        .then(|| Json::parse(input).or_else(|_| Json::new(input)).ok())
        .flatten();
    let content = (!content.is_empty()).then(|| Json::new(content).ok()).flatten();
    let citations = (!citations.is_empty()).then(|| Json::new(citations).ok()).flatten();
    for (name, value) in [("input", input), ("content", content), ("citations", citations)] {
        if let Some(raw) = value.and_then(|value| to_raw_value(&value).ok()) {
            fields.set(name, raw);
        }
    }
    fields.into_json().unwrap_or_else(|| began.clone())
}
