//! Decodes a response's frames into a turn.

mod blocks;
mod frames;
mod message_meta;
mod opaque_block;
mod transformations;

use std::ops::Range;

use serde_json::value::RawValue;

pub use self::transformations::{InputTransformation, input_transformations};

use self::blocks::{Block, DeltaKind};
use self::frames::{Delta, Event, Message, RawDelta, TokenCounts};
use self::message_meta::MessageMeta;
use crate::error::Error;
use crate::item::{ProviderData, StopReason};
use crate::provider::codec::decode::{Decode, FrameOutcome};
use crate::provider::codec::failure::{self, protocol_error};
use crate::provider::codec::frame_template::FrameTemplate;
use crate::provider::codec::lenient::{LenientStr, read_frame, read_lenient};
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::codec::turn_ending::common_stop_reason;
use crate::provider::wires::anthropic::dialect::Dialect;
use crate::provider::wires::anthropic::passthrough::PROVIDER_NAME;
use crate::request::ToolNames;
use crate::sse::Frame;
use crate::turn::TurnBuilder;

/// The maximum number of blocks that can be open at the same time. Anthropic's own API opens only
/// one block at a time.
const MAX_OPEN_BLOCKS: usize = 256;

/// Decodes events from the Anthropic Messages API. The decoder is pure and performs no I/O.
///
/// Message metadata that does not belong to a content block becomes the last item of the turn, an
/// item of kind [`Other`](crate::item::ItemKind::Other). The metadata item can contain:
///
/// - the container in which code ran, which is sent back with the next request
/// - the matched stop sequence
/// - the details of a refusal
/// - the changes that Anthropic made to the request before the model saw it, which
///   [`input_transformations`](super::input_transformations) returns
/// - the usage counts for server tools
/// - the `iterations` in the usage information, if any iteration belongs to a compaction or to a
///   model other than the requested one
///
/// A turn without metadata has no metadata item. [`Usage`](crate::Usage) contains the counts that
/// Anthropic reports at the top level, which do not include tokens from iterations that belong to a
/// compaction or to another model.
///
/// ```json
/// {"type":"message","container":{"id":"container_1"},"stop_sequence":"END"}
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    /// The requested model. The provider data of the turn's items is sent back only to this model.
    model: String,
    tool_names: ToolNames,
    dialect: Dialect,
    message_id: Option<String>,
    token_counts: TokenCounts,
    meta: MessageMeta,
    open_blocks: Vec<(u64, Block)>,
    /// The range of item keys assigned to the current message's blocks.
    item_keys: Range<u32>,
    template: FrameTemplate<RepeatedDelta>,
}

/// Specifies the item to which the text of a repeated delta is added, and the kind of this text. A
/// repeated delta differs from an earlier delta only in its text.
#[derive(Clone, Copy, Debug)]
struct RepeatedDelta {
    key: u32,
    kind: DeltaKind,
}

impl Decoder {
    /// Creates a decoder for a response from `model`.
    pub fn new(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }

    /// Sets the names of the tools, which calls are converted back to.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the provider uses it"))]
    pub(super) fn with_tool_names(mut self, names: ToolNames) -> Self {
        self.tool_names = names;
        self
    }

    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the provider uses it"))]
    pub(super) fn with_dialect(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    fn on_message_start(
        &mut self,
        message: &Message<'_>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let id = message.id.or_empty();
        match &self.message_id {
            Some(open) if open != id => {
                return Err(protocol_error("a second message began inside the first"));
            }
            // Messages without ids are indistinguishable, so this event may start another message.
            Some(_) if id.is_empty() && self.item_keys.end > self.item_keys.start => {
                return Err(protocol_error(
                    "a message began after the blocks of another, both without an id",
                ));
            }
            Some(_) => return Ok(()),
            None => self.message_id = Some(id.to_owned()),
        }
        turn.set_provider(PROVIDER_NAME);
        turn.set_response_id(id);
        turn.set_model(message.model.or_empty());
        if let Some(usage) = &message.usage.0 {
            self.token_counts.update(**usage);
            turn.set_usage(self.token_counts.to_usage());
        }
        let content = message.content.map_or("[]", RawValue::get);
        let content: Vec<&RawValue> = serde_json::from_str(content).unwrap_or_default();
        for (index, block) in (0..).zip(content) {
            self.on_block_start(index, block, turn)?;
            self.on_block_stop(index, turn);
        }
        // The stop reason of a message whose blocks have not arrived yet is not final.
        if self.item_keys.end > self.item_keys.start {
            set_stop_reason(&message.stop_reason, turn)?;
        }
        Ok(())
    }

    fn on_block_start(
        &mut self,
        index: u64,
        raw: &RawValue,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let key = self.item_key(index);
        self.item_keys.end = self.item_keys.end.max(key.saturating_add(1));
        let stopped = turn.is_stopped();
        if let Some(block) = Block::start(key, raw, &self.model, &self.tool_names, turn)? {
            if stopped && block.is_call() {
                return Err(late_call_error());
            }
            self.open_blocks.retain(|(open, _)| *open != index);
            match self.open_blocks.len() < MAX_OPEN_BLOCKS {
                true => self.open_blocks.push((index, block)),
                false => turn.exceed_item_limit(),
            }
        }
        Ok(())
    }

    fn on_block_delta(
        &mut self,
        index: u64,
        delta: Option<&Delta<'_>>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let key = self.item_key(index);
        let open = self.open_blocks.iter_mut().rfind(|(open, _)| *open == index);
        let is_call = open.as_ref().is_some_and(|(_, block)| block.is_call());
        let Some(delta) = delta else {
            // The lost delta may have contained a piece of the call's input.
            let lost = || protocol_error("a piece of a tool call's input is not an object");
            return if is_call { Err(lost()) } else { Ok(()) };
        };
        let kind = match delta.r#type.or_empty() {
            _ if is_call && delta.partial_json.get().is_some() => "input_json_delta",
            "" if delta.partial_json.get().is_some() => "input_json_delta",
            kind => kind,
        };
        let adds = !delta.partial_json.or_empty().is_empty();
        if kind == "input_json_delta" && is_call && adds && turn.is_stopped() {
            return Err(late_call_error());
        }
        // A call is valid only if its arguments are complete, so a lost piece of the arguments is
        // an error.
        let fits = open.as_ref().is_some_and(|(_, block)| block.accepts_json());
        if kind == "input_json_delta" && (!fits || delta.partial_json.get().is_none()) {
            return Err(protocol_error(
                "a piece of a tool call's input belongs to no call or is not text",
            ));
        }
        // Any other delta for a block that never started is ignored, because a proxy has lost the
        // start event.
        if let Some((_, block)) = open {
            block.push_delta(key, kind, delta, turn);
        }
        Ok(())
    }

    /// Returns the text of an applied delta, or `None` if applying the same delta with different
    /// text could have effects other than adding that text.
    fn repeatable_text<'a>(
        &self,
        index: u64,
        delta: &'a Delta<'_>,
        turn: &TurnBuilder,
    ) -> Option<(RepeatedDelta, &'a str)> {
        let (_, block) = self.open_blocks.iter().rfind(|(open, _)| *open == index)?;
        let (kind, text) = block.repeatable_text(delta)?;
        (!turn.is_stopped()).then(|| (RepeatedDelta { key: self.item_key(index), kind }, text))
    }

    fn on_compaction_delta(&mut self, index: u64, data: &str) {
        let mut scratch = String::new();
        let event: RawDelta<'_> = read_lenient(data, &mut scratch).unwrap_or_default();
        let open = self.open_blocks.iter_mut().rfind(|(open, _)| *open == index);
        if let Some((_, block)) = open
            && let Some(delta) = event.delta.and_then(|delta| OrderedFields::parse(delta.get()))
        {
            block.push_compaction_delta(delta);
        }
    }

    fn on_block_stop(&mut self, index: u64, turn: &mut TurnBuilder) {
        if let Some(at) = self.open_blocks.iter().rposition(|(open, _)| *open == index) {
            let (_, block) = self.open_blocks.remove(at);
            block.finish(self.item_key(index), &self.model, self.dialect, turn);
        }
    }

    /// Ends all blocks whose end events have not arrived. Calls and provider-specific blocks
    /// without an end event are incomplete and are dropped.
    fn end_open_blocks(&mut self, turn: &mut TurnBuilder) {
        for (index, block) in std::mem::take(&mut self.open_blocks) {
            if block.may_stay_open() {
                // Thinking without its end event may be incomplete, and its signature may be
                // missing for this reason.
                block.finish(self.item_key(index), &self.model, Dialect::Signed, turn);
            }
        }
    }

    /// Returns the item key for the block with this index. The key saturates at its maximum value,
    /// but no message has enough blocks to reach it.
    fn item_key(&self, index: u64) -> u32 {
        self.item_keys.start.saturating_add(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        if let Some((RepeatedDelta { key, kind }, text)) = self.template.read(&frame) {
            kind.push(key, &text, turn);
            return Ok(FrameOutcome::Continue);
        }
        // Events of unknown types and keep-alive events may contain arbitrary data. Proxies send
        // `[DONE]`.
        let known = frame.event == "message"
            || frame.event == "error"
            || frame.event.starts_with("message_")
            || frame.event.starts_with("content_block_");
        if !known || matches!(frame.data.trim(), "" | "[DONE]") {
            return Ok(FrameOutcome::Continue);
        }
        self.template.forget();
        let mut scratch = String::new();
        let event: Event<'_> = read_frame("an event", frame.data, &mut scratch)?;
        let kind = event.r#type.get().unwrap_or(frame.event);
        // An event without an index belongs to the only block that is open.
        let is_anybodys = event.index.0.is_none()
            && matches!(kind, "content_block_delta" | "content_block_stop")
            && self.open_blocks.iter().any(|(_, block)| block.is_call());
        if is_anybodys && self.open_blocks.len() > 1 {
            return Err(protocol_error("an event may belong to several blocks"));
        }
        let only = self.open_blocks.first().filter(|_| is_anybodys).map(|(open, _)| *open);
        let index = event.index.0.or(only).unwrap_or_default();
        match kind {
            "content_block_delta" => {
                let delta = event.delta.0.as_ref();
                self.on_block_delta(index, delta, turn)?;
                if delta.and_then(|delta| delta.r#type.get()) == Some("compaction_delta") {
                    self.on_compaction_delta(index, frame.data);
                }
                if let Some(delta) = delta
                    && let Some((repeated, text)) = self.repeatable_text(index, delta, turn)
                {
                    self.template.remember(&frame, text, None, repeated);
                }
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.on_block_start(index, block, turn)?;
                }
            }
            "content_block_stop" => self.on_block_stop(index, turn),
            "message_start" => {
                if let Some(message) = &event.message.0 {
                    self.meta.read_event(frame.data);
                    self.on_message_start(message, turn)?;
                }
            }
            "message_delta" => {
                if let Some(usage) = &event.usage.0 {
                    self.token_counts.update(**usage);
                    turn.set_usage(self.token_counts.to_usage());
                }
                if let Some(delta) = &event.delta.0 {
                    set_stop_reason(&delta.stop_reason, turn)?;
                }
                self.meta.read_event(frame.data);
            }
            "message_stop" => {
                if !turn.is_stopped() {
                    turn.stop(StopReason::Other("message_stop".to_owned()), "");
                }
                return Ok(FrameOutcome::Done);
            }
            "error" => return Err(failure::error_in_stream(frame.data)),
            "message" if event.error.is_some() => return Err(failure::error_in_stream(frame.data)),
            // `ping` events, and event types added in later versions of the API.
            _ => {}
        }
        Ok(FrameOutcome::Continue)
    }

    /// Handles the start of an additional message after the end of a message. The API sends
    /// additional messages with programmatic tool calling. They belong to the same turn, which ends
    /// with the last message.
    fn after_done(
        &mut self,
        frame: Frame<'_>,
        turn: &mut TurnBuilder,
    ) -> Result<FrameOutcome, Error> {
        let mut scratch = String::new();
        let Ok(event) = read_lenient::<Event<'_>>(frame.data, &mut scratch) else {
            return Ok(FrameOutcome::Done);
        };
        let starts = event.r#type.get().unwrap_or(frame.event) == "message_start";
        let id = event.message.0.as_ref().map(|message| message.id.or_empty());
        if !starts || id.is_none() || id == self.message_id.as_deref() {
            return Ok(FrameOutcome::Done);
        }
        self.end_open_blocks(turn);
        self.message_id = None;
        self.item_keys.start = self.item_keys.end;
        self.token_counts.start_next_message();
        turn.clear_stop();
        self.frame(frame, turn)
    }

    fn finish(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        self.end_open_blocks(turn);
        if !self.meta.billing().is_empty() {
            *turn.billing() = self.meta.billing().clone();
        }
        if let Some(meta) = self.meta.take_json() {
            turn.push_provider_item(ProviderData::new(PROVIDER_NAME, &self.model, meta));
        }
        Ok(())
    }
}

fn late_call_error() -> Error {
    protocol_error("a piece of a tool call came after the stop reason")
}

fn set_stop_reason(reason: &LenientStr<'_>, turn: &mut TurnBuilder) -> Result<(), Error> {
    let Some(raw) = reason.get().filter(|raw| !raw.is_empty()) else { return Ok(()) };
    let reason = match raw {
        // After either of these stop reasons, the model continues once the history is sent again.
        "pause_turn" | "compaction" => StopReason::Pause,
        "refusal" => StopReason::Refusal,
        word => common_stop_reason(word)?,
    };
    turn.stop(reason, raw);
    Ok(())
}
