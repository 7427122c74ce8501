//! From frames to a turn.

mod calls;
mod citations;
mod frames;
mod reasoning;
mod tags;

use std::borrow::Cow;

use self::calls::Calls;
use self::citations::Citations;
use self::frames::{Choice, Chunk, Delta, RareFields, WireCall};
use self::reasoning::ReasoningData;
use self::tags::{TagParser, TextPiece};
use crate::error::{Error, ErrorKind};
use crate::item::{ProviderData, RawJson, StopReason};
use crate::provider::decode::{Decode, FrameOutcome};
use crate::provider::failure::{self, protocol_error};
use crate::provider::frame_template::FrameTemplate;
use crate::provider::lenient::{self, FromAny, LenientNumber, MaybeObject, array_elements};
use crate::provider::openai::arguments_text;
use crate::provider::openai_chat::dialect::{Dialect, TurnEnd};
use crate::provider::ordered_fields::OrderedFields;
use crate::sse::Frame;
use crate::turn::{ReasoningKind, TurnBuilder};

/// The items of a turn on this wire, which has no indices for them.
const TEXT_ITEM_KEY: u32 = 0;
const REASONING_ITEM_KEY: u32 = 1;
const REFUSAL_ITEM_KEY: u32 = 2;

/// The index of the one call that `function_call` can hold.
const LEGACY_CALL_INDEX: u64 = u64::MAX;

/// Reads the chunks of the Chat Completions wire. Pure: it does no I/O.
///
/// Of several choices the first is read; others were not asked for. Annotations and citations are
/// kept in the [`ProviderData`] of the text. Pictures that the model made are kept as
/// [the provider's own](crate::item::ItemKind::Other).
#[derive(Debug)]
pub struct Decoder {
    /// The model that was asked: what it signs is bound to this name.
    model: String,
    /// The dialect's name, under which provider data is kept.
    provider_name: &'static str,
    turn_end: TurnEnd,
    calls: Calls,
    reasoning: ReasoningData,
    /// Reasoning came under a name of its own: what else repeats it is not said again.
    has_reasoning_text: bool,
    tags: Option<TagParser>,
    citations: Citations,
    has_refusal: bool,
    /// A choice came: this is an answer.
    has_choice: bool,
    template: FrameTemplate<DeltaKind>,
}

/// The kind of text in a chunk that has nothing else.
#[derive(Clone, Copy, Debug)]
enum DeltaKind {
    Text,
    Reasoning,
    Arguments { call: usize },
}

impl Decoder {
    /// Makes a decoder for the answer of a model.
    pub fn new(model: &str, dialect: &Dialect) -> Self {
        Self {
            model: model.to_owned(),
            provider_name: dialect.name,
            turn_end: dialect.turn_end,
            calls: Calls::default(),
            reasoning: ReasoningData::default(),
            has_reasoning_text: false,
            tags: TagParser::new(dialect.think_tags, dialect.parses_text_calls),
            citations: Citations::default(),
            has_refusal: false,
            has_choice: false,
            template: FrameTemplate::default(),
        }
    }

    fn provider_data(&self, value: impl Into<RawJson>) -> ProviderData {
        ProviderData::new(self.provider_name, &self.model, value)
    }

    fn on_choice(&mut self, choice: &Choice<'_>, turn: &mut TurnBuilder) -> Result<(), Error> {
        self.has_choice = true;
        if let Some(error) = failure::non_null_error(choice.error) {
            return Err(failure::error_in_stream(error.get()));
        }
        if choice.delta.malformed {
            self.calls.mark_open_calls_broken();
        }
        if let Some(delta) = &choice.delta.value {
            // What comes behind the finish reason is passed over.
            match turn.is_stopped() {
                false => self.on_delta(delta, turn)?,
                true if delta.tool_calls.calls.iter().any(WireCall::adds_arguments) => {
                    return Err(protocol_error(
                        "arguments of a tool call came behind the finish reason",
                    ));
                }
                true => {}
            }
        }
        let Some(raw) = choice.finish_reason.non_empty() else { return Ok(()) };
        let broke_off = match raw {
            "error" | "network_error" => Some(ErrorKind::Server),
            "insufficient_system_resource" => Some(ErrorKind::Overloaded),
            _ => None,
        };
        if let Some(kind) = broke_off {
            let message = format!("the provider broke off with finish reason `{raw}`");
            return Err(Error::new(kind, message));
        }
        match turn.is_stopped() {
            true => Ok(()),
            false => self.stop_turn(self.stop_reason(raw), raw, turn),
        }
    }

    fn stop_turn(
        &mut self,
        reason: StopReason,
        raw: &str,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        self.flush_held_text(turn);
        turn.stop(reason, raw);
        // The wire has no end of a call of its own: it is the finish reason.
        let Self { calls, model, provider_name, .. } = self;
        calls.end_all(turn, |value| ProviderData::new(provider_name, model, value))
    }

    fn on_delta(&mut self, delta: &Delta<'_>, turn: &mut TurnBuilder) -> Result<(), Error> {
        let others = delta.content.other_parts.as_deref();
        let in_parts = || others.map(|others| &*others.reasoning).filter(|text| !text.is_empty());
        if let Some(thought) = delta.reasoning.get().or_else(in_parts) {
            self.has_reasoning_text = true;
            turn.push_reasoning(REASONING_ITEM_KEY, thought, ReasoningKind::Trace);
        }
        if let Some(rare) = &delta.rare {
            self.on_rare_fields(rare, turn)?;
        }
        if let Some(text) = delta.content.text.as_deref() {
            self.push_text(text, turn);
        }
        for image in others.into_iter().flat_map(|others| &others.images) {
            self.push_image(image.get(), turn);
        }
        if let Some(refusal) = delta.refusal.non_empty() {
            self.has_refusal = true;
            turn.push_refusal(REFUSAL_ITEM_KEY, refusal);
        }
        for call in &delta.tool_calls.calls {
            self.push_call(call, turn)?;
        }
        if delta.tool_calls.malformed {
            self.calls.mark_open_calls_broken();
        }
        if let Some(raw) = delta.rare.as_ref().and_then(|rare| rare.function_call) {
            let function = serde_json::from_str(raw.get());
            let function = function.unwrap_or_else(|_| MaybeObject::from_malformed());
            let index = LenientNumber(Some(LEGACY_CALL_INDEX));
            self.push_call(&WireCall { index, function, ..WireCall::default() }, turn)?;
        }
        Ok(())
    }

    fn push_text(&mut self, text: &str, turn: &mut TurnBuilder) {
        let Self { tags, calls, .. } = self;
        match tags {
            None => turn.push_text(TEXT_ITEM_KEY, text),
            Some(tags) => tags.push(text, |piece| push_text_piece(piece, calls, turn)),
        }
    }

    /// Takes the text of a chunk that repeats the one before but for it.
    fn push_repeated(&mut self, kind: DeltaKind, text: &str, turn: &mut TurnBuilder) {
        match kind {
            DeltaKind::Text => self.push_text(text, turn),
            DeltaKind::Reasoning => {
                turn.push_reasoning(REASONING_ITEM_KEY, text, ReasoningKind::Trace);
            }
            DeltaKind::Arguments { call } => Calls::push_arguments(call, text, turn),
        }
    }

    /// The text of a chunk that was read, if the same chunk with another text would add that and do
    /// nothing else.
    fn repeatable_text<'a>(
        &self,
        chunk: &'a Chunk<'_>,
        turn: &TurnBuilder,
    ) -> Option<(DeltaKind, &'a str)> {
        let choice = chunk.choices.choice.as_ref()?;
        let delta = choice.delta.value.as_ref()?;
        let has_more = chunk.choices.malformed
            || chunk.usage.0.is_some()
            || chunk.citations.is_some()
            || choice.usage.0.is_some()
            || choice.delta.malformed
            || choice.finish_reason.non_empty().is_some()
            || delta.refusal.non_empty().is_some()
            || delta.rare.is_some()
            || delta.content.other_parts.is_some()
            || delta.tool_calls.malformed;
        if has_more || turn.is_stopped() {
            return None;
        }
        let text = delta.content.text.as_deref();
        let reasoning = delta.reasoning.get();
        match (text, reasoning, &*delta.tool_calls.calls) {
            (Some(text), None | Some(""), []) => Some((DeltaKind::Text, text)),
            (None, Some(thought), []) => Some((DeltaKind::Reasoning, thought)),
            (Some(""), Some(thought), []) if self.tags.is_none() => {
                Some((DeltaKind::Reasoning, thought))
            }
            (None, None | Some(""), [call]) => {
                let arguments = arguments_text(call.function.value.as_ref()?.arguments)?;
                let Cow::Borrowed(text) = arguments else { return None };
                Some((DeltaKind::Arguments { call: self.calls.find_repeatable(call)? }, text))
            }
            _ => None,
        }
    }

    fn on_rare_fields(
        &mut self,
        rare: &RareFields<'_>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        if rare.audio.is_some() {
            let message = "the model answers with sound, which is not read";
            return Err(Error::new(ErrorKind::Unsupported, message).with_parameter("audio"));
        }
        if let Some(words) = self.reasoning.push_rare_fields(rare) {
            if !self.has_reasoning_text {
                turn.push_reasoning(REASONING_ITEM_KEY, &words, ReasoningKind::Trace);
            }
            // What is encrypted has its place among the items, too, and is filled in at the end.
            turn.set_reasoning_data(REASONING_ITEM_KEY, self.provider_data(serde_json::json!({})));
        }
        self.citations.add_annotations(rare.annotations);
        for image in array_elements(rare.images) {
            self.push_image(image.get(), turn);
        }
        Ok(())
    }

    /// Keeps a picture that the model made.
    fn push_image(&mut self, raw: &str, turn: &mut TurnBuilder) {
        if let Some(value) = OrderedFields::parse(raw).and_then(OrderedFields::into_json) {
            self.flush_held_text(turn);
            turn.push_provider_item(self.provider_data(value));
        }
    }

    fn push_call(&mut self, call: &WireCall<'_>, turn: &mut TurnBuilder) -> Result<(), Error> {
        if call.is_custom() {
            let message = "the model called a custom tool, whose input is no JSON";
            return Err(Error::new(ErrorKind::Unsupported, message).with_parameter("tools"));
        }
        self.flush_held_text(turn);
        self.calls.push(call, turn);
        Ok(())
    }

    /// What was held back of the text is said before what comes next.
    fn flush_held_text(&mut self, turn: &mut TurnBuilder) {
        let Self { tags, calls, .. } = self;
        if let Some(tags) = tags {
            tags.flush(|piece| push_text_piece(piece, calls, turn));
        }
    }

    fn stop_reason(&self, raw: &str) -> StopReason {
        match raw {
            // The vendor's refusals say `stop`.
            "stop" | "end" | "eos" | "eos_token" | "end_turn" | "stop_sequence" => {
                match self.has_refusal {
                    true => StopReason::Refusal,
                    false => StopReason::Stop,
                }
            }
            "tool_calls" | "function_call" | "tool_use" => StopReason::ToolCalls,
            "length" | "max_tokens" => StopReason::MaxTokens,
            "content_filter" | "sensitive" => StopReason::ContentFilter,
            "model_context_window_exceeded" => StopReason::ContextWindow,
            other => StopReason::Other(other.to_owned()),
        }
    }

    /// Ends a turn whose finish reason never came. One with calls stays without its end: an answer
    /// that broke off looks the same.
    fn stop_without_reason(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        if turn.is_stopped() || !self.has_choice || !self.calls.is_empty() {
            return Ok(());
        }
        let reason = if self.has_refusal { StopReason::Refusal } else { StopReason::Stop };
        self.stop_turn(reason, "", turn)
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        if let Some((kind, text)) = self.template.read(&frame) {
            self.push_repeated(kind, &text, turn);
            return Ok(FrameOutcome::Continue);
        }
        self.template.forget();
        if frame.data.trim() == "[DONE]" {
            if self.turn_end != TurnEnd::FinishReason {
                self.stop_without_reason(turn)?;
            }
            return Ok(FrameOutcome::Done);
        }
        if frame.data.trim().is_empty() {
            return Ok(FrameOutcome::Continue);
        }
        let mut room = String::new();
        let chunk: Chunk<'_> = lenient::read_frame("a chunk", frame.data, &mut room)?;
        if let Some(error) = failure::non_null_error(chunk.error) {
            return Err(failure::error_in_stream(error.get()));
        }
        turn.set_provider(self.provider_name);
        turn.set_response_id(chunk.id.or_empty());
        turn.set_model(chunk.model.or_empty());
        let is_none = chunk.choices.malformed || !frame.data.trim_start().starts_with('{');
        if is_none && !turn.is_stopped() {
            self.calls.mark_open_calls_broken();
        }
        if let Some(choice) = &chunk.choices.choice {
            self.on_choice(choice, turn)?;
            if let Some(usage) = &choice.usage.0 {
                turn.set_usage(usage.to_usage());
            }
        }
        if let Some(usage) = &chunk.usage.0 {
            turn.set_usage(usage.to_usage());
        }
        self.citations.set_citations(chunk.citations);
        if let Some((kind, text)) = self.repeatable_text(&chunk, turn) {
            self.template.remember(&frame, text, None, kind);
        }
        Ok(FrameOutcome::Continue)
    }

    fn body_ended(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        match self.turn_end {
            TurnEnd::BodyEnd => self.stop_without_reason(turn),
            TurnEnd::FinishReason | TurnEnd::DoneMarker => Ok(()),
        }
    }

    fn finish(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        if let Some(value) = std::mem::take(&mut self.reasoning).into_json() {
            turn.set_reasoning_data(REASONING_ITEM_KEY, self.provider_data(value));
        }
        if let Some(value) = std::mem::take(&mut self.citations).into_json() {
            turn.set_text_data(TEXT_ITEM_KEY, self.provider_data(value));
        }
        Ok(())
    }
}

fn push_text_piece(piece: TextPiece<'_>, calls: &mut Calls, turn: &mut TurnBuilder) {
    match piece {
        TextPiece::Text(text) => turn.push_text(TEXT_ITEM_KEY, text),
        TextPiece::Reasoning(thought) => {
            turn.push_reasoning(REASONING_ITEM_KEY, thought, ReasoningKind::Trace);
        }
        TextPiece::Call(written) => {
            if !calls.push_text_call(written, turn) {
                turn.push_text(TEXT_ITEM_KEY, &format!("<tool_call>{written}</tool_call>"));
            }
        }
    }
}
