//! Decodes a response's frames into a turn.

mod blocks;
mod calls;
mod created_event;
mod frames;
mod text;

use std::borrow::Cow;

use serde_json::value::RawValue;

use self::blocks::{Location, OutputItems};
use self::calls::DeclaredTools;
use self::created_event::CreatedEvent;
use self::frames::{Event, Response};
use self::text::TextKind;
use crate::error::{Error, ErrorKind};
use crate::item::StopReason;
use crate::provider::codec::decode::{Decode, FrameOutcome};
use crate::provider::codec::failure::{self, protocol_error};
use crate::provider::codec::frame_template::FrameTemplate;
use crate::provider::codec::lenient::{self, LenientStr, deserialize_string};
use crate::provider::codec::turn_ending::common_stop_reason;
use crate::provider::wires::openai::arguments_text;
use crate::provider::wires::openai_responses::passthrough::{MessagePart, PROVIDER_NAME};
use crate::request::{ToolNameRule, ToolSpecs};
use crate::sse::Frame;
use crate::turn::TurnBuilder;

/// The message for a retraction that occurs because a finished item contradicts its deltas.
const MISMATCH_MESSAGE: &str = "the provider corrected what it had streamed";

/// Decodes events from the Responses API. The decoder is pure and performs no I/O.
///
/// Items are identified by `output_index`. A call is complete once one of these events arrives:
/// `response.function_call_arguments.done`, `response.output_item.done`, or a terminal event that
/// contains the call's item. If the final form of a message or a call contradicts its deltas, the
/// final form is used. To switch to the final form, the decoder
/// [retracts](crate::turn::TurnEvent::Retracted) the turn, emits all of its content again, and then
/// completes it.
///
/// The decoder ignores `sequence_number`, because a connection cannot lose individual events, some
/// gateways number events differently, and the final events repeat everything that a call requires.
#[derive(Debug, Default)]
pub struct Decoder {
    items: OutputItems,
    response_id: String,
    response_model: String,
    template: FrameTemplate<RepeatedDelta>,
    /// The event `response.created`, until the next event.
    created: Option<CreatedEvent>,
}

/// A delta that differs from an earlier delta only in its text.
#[derive(Clone, Copy, Debug)]
struct RepeatedDelta {
    /// The position of the item to which the delta belongs.
    at: usize,
    kind: DeltaKind,
}

#[derive(Clone, Copy, Debug)]
enum DeltaKind {
    Text { part: (TextKind, u64) },
    Arguments,
}

impl Decoder {
    /// Creates a decoder for a response from `model`.
    pub fn new(model: &str) -> Self {
        Self { items: OutputItems::for_model(model), ..Self::default() }
    }

    /// Sets the request's tools, so that a call that combines several calls to them is split.
    ///
    /// Models sometimes combine several calls into a single call to an undeclared tool such as
    /// `parallel`. If the declared tools are known and every inner call is a call to a declared
    /// tool, the decoder emits the inner calls instead of the combined call. Otherwise, the decoder
    /// emits the combined call unchanged, as a call to an unknown tool.
    pub fn with_tools(self, tools: impl Into<ToolSpecs>) -> Self {
        self.with_renamed_tools(tools.into(), ToolNameRule::Any)
    }

    /// Sets the declared tools, whose names the server sees as `rule` allows.
    pub(super) fn with_renamed_tools(mut self, specs: ToolSpecs, rule: ToolNameRule) -> Self {
        self.items.declared_tools = DeclaredTools { names: specs.names_for(rule), specs };
        self
    }

    fn on_event(
        &mut self,
        kind: &str,
        event: &Event<'_>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let location = event.location();
        let items = &mut self.items;
        let whole =
            |items: &mut OutputItems, turn: &mut TurnBuilder, kind, text: &LenientStr<'_>| {
                items.on_text_done(location, event.part(kind), text.or_empty(), turn);
            };
        match kind {
            "response.output_text.done" => whole(items, turn, TextKind::Text, &event.text),
            "response.refusal.done" => whole(items, turn, TextKind::Refusal, &event.refusal),
            "response.reasoning_summary_text.done" => {
                whole(items, turn, TextKind::Summary, &event.text);
            }
            "response.reasoning_text.done" => whole(items, turn, TextKind::Trace, &event.text),
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                if let Some((kind, text)) = event.part.0.as_deref().and_then(text_of_part) {
                    items.on_text_done(location, event.part(kind), text, turn);
                }
            }
            "response.function_call_arguments.done" => {
                let arguments = arguments_text(event.arguments);
                items.on_arguments_done(location, event.name.or_empty(), arguments, turn)?;
            }
            "response.output_item.added" => {
                if let Some(item) = event.item {
                    items.on_item_added(location, item, turn);
                }
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    items.on_item_done(location, item, turn)?;
                }
            }
            "response.created" if self.items.has_items() && !self.is_current_response(event) => {
                return Err(protocol_error("a second response began inside the first"));
            }
            // Lifecycle events, progress events from hosted tools (whose finished items contain the
            // results), and event types added in later versions of the API.
            _ => {
                if let Some(response) = &event.response.0 {
                    self.set_identity(response, turn);
                }
            }
        }
        Ok(())
    }

    /// Returns whether the event belongs to the current response.
    fn is_current_response(&self, event: &Event<'_>) -> bool {
        let id = event.response.0.as_ref().map_or("", |response| response.id.or_empty());
        !id.is_empty() && id == self.response_id
    }

    /// Sets the response id and the model. This method is called again after each retraction,
    /// because a retraction resets the response id and the model.
    fn set_identity(&mut self, response: &Response<'_>, turn: &mut TurnBuilder) {
        if self.response_id.is_empty() {
            response.id.or_empty().clone_into(&mut self.response_id);
        }
        if self.response_model.is_empty() {
            response.model.or_empty().clone_into(&mut self.response_model);
        }
        turn.set_response_id(&self.response_id);
        turn.set_model(&self.response_model);
    }

    /// Handles the terminal event, which is `response.completed` or one of its variants.
    fn on_terminal_event(
        &mut self,
        word: &str,
        response: &Response<'_>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        self.set_identity(response, turn);
        let word = if word == "done" { "completed" } else { word };
        let status = match response.status.or_empty() {
            // An unsuccessful outcome takes precedence, whether it is reported by the status or by
            // the event type.
            status @ ("incomplete" | "failed" | "cancelled") => status,
            _ => word,
        };
        let output = if status == "failed" { &[][..] } else { &response.output.0 };
        self.items.apply_terminal_output(output, turn)?;
        if self.items.exceeds_item_limit() {
            turn.exceed_item_limit();
            return Ok(());
        }
        if self.items.take_mismatch() {
            turn.retract(MISMATCH_MESSAGE);
            self.set_identity(response, turn);
            self.items.emit_again(turn);
        }
        turn.set_service_tier(response.service_tier.or_empty());
        self.items.count_server_tool_calls(turn);
        self.items.push_logprobs(turn);
        // The usage is set after the retraction, which would otherwise count the same usage again.
        if let Some(usage) = &response.usage.0 {
            turn.set_usage(usage.to_usage());
            usage.set_billing(turn);
        }
        if status == "failed" {
            return Err(failure::error_in_stream(response.error.map_or("{}", RawValue::get)));
        }
        if status == "cancelled" {
            let cause = Error::new(ErrorKind::Server, "the response was cancelled");
            return Err(turn.fail_incomplete(Some(cause)));
        }
        let details = response.incomplete_details.0.as_ref();
        let reason =
            self.stop_reason(status, details.map_or("", |details| details.reason.or_empty()))?;
        if matches!(reason, StopReason::Stop | StopReason::ToolCalls) {
            self.items.check_calls()?;
        }
        self.items.emit_unstarted_calls(turn);
        turn.stop(reason, status);
        Ok(())
    }

    /// Returns the turn's stop reason. The reason in `incomplete_details` takes precedence over the
    /// status.
    fn stop_reason(&self, status: &str, incomplete: &str) -> Result<StopReason, Error> {
        Ok(match (incomplete, status) {
            ("", "completed") if self.items.has_calls() => StopReason::ToolCalls,
            ("", "completed") if self.items.has_refusal() => StopReason::Refusal,
            ("", "completed") => StopReason::Stop,
            ("", status) => StopReason::Other(status.to_owned()),
            (reason, _) => common_stop_reason(reason)?,
        })
    }
}

impl Event<'_> {
    /// Returns the location of the item to which the event belongs.
    fn location(&self) -> Location<'_> {
        Location { index: self.output_index.0, id: self.item_id.or_empty() }
    }

    /// Returns `kind` together with the index of the part to which the event refers.
    fn part(&self, kind: TextKind) -> (TextKind, u64) {
        let index = if kind == TextKind::Summary { self.summary_index } else { self.content_index };
        (kind, index.or_zero())
    }
}

impl DeltaKind {
    /// Returns the kind of a delta event, or `None` if the event is not a delta that the decoder
    /// reads.
    fn of_event(kind: &str, event: &Event<'_>) -> Option<Self> {
        let kind = match kind {
            "response.output_text.delta" => TextKind::Text,
            "response.refusal.delta" => TextKind::Refusal,
            "response.reasoning_summary_text.delta" => TextKind::Summary,
            "response.reasoning_text.delta" => TextKind::Trace,
            "response.function_call_arguments.delta" => return Some(Self::Arguments),
            _ => return None,
        };
        Some(Self::Text { part: event.part(kind) })
    }

    /// Applies a delta's text, which is `None` if the received value is not a string. Returns the
    /// position of the delta's item, or `None` if it is unclear to which item the delta belongs.
    fn push(
        self,
        text: Option<&str>,
        location: Location<'_>,
        items: &mut OutputItems,
        turn: &mut TurnBuilder,
    ) -> Option<usize> {
        match self {
            Self::Text { part } => {
                Some(items.on_text_delta(location, part, text.unwrap_or_default(), turn))
            }
            Self::Arguments => items.on_arguments_delta(location, text, turn),
        }
    }
}

impl RepeatedDelta {
    fn push(self, text: &str, items: &mut OutputItems, turn: &mut TurnBuilder) {
        match self.kind {
            DeltaKind::Text { part } => items.push_text(self.at, part, text, turn),
            DeltaKind::Arguments => items.push_arguments(self.at, Some(text), turn),
        }
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        if let Some((delta, text)) = self.template.read(&frame) {
            delta.push(&text, &mut self.items, turn);
            return Ok(FrameOutcome::Continue);
        }
        // Events of unknown types and keep-alive events may contain arbitrary data.
        let known =
            matches!(frame.event, "message" | "error") || frame.event.starts_with("response.");
        let data = frame.data.trim();
        if !known || data.is_empty() {
            return Ok(FrameOutcome::Continue);
        }
        if data == "[DONE]" {
            return Ok(FrameOutcome::Done);
        }
        turn.set_provider(PROVIDER_NAME);
        self.template.forget();
        if let Some(created) = self.created.take()
            && created.is_repeated_in_progress(&frame)
        {
            return Ok(FrameOutcome::Continue);
        }
        let mut scratch = String::new();
        let event: Event<'_> = lenient::read_frame("an event", frame.data, &mut scratch)?;
        let kind = event.r#type.get().unwrap_or(frame.event);
        if let Some(kind) = DeltaKind::of_event(kind, &event) {
            let text = event.delta.and_then(deserialize_string);
            let at = kind.push(text.as_deref(), event.location(), &mut self.items, turn);
            if self.items.exceeds_item_limit() {
                turn.exceed_item_limit();
            } else if let (Some(at), Some(Cow::Borrowed(text))) = (at, text) {
                self.template.remember(&frame, text, None, RepeatedDelta { at, kind });
            }
            return Ok(FrameOutcome::Continue);
        }
        match kind {
            "error" => return Err(failure::error_in_stream(frame.data)),
            "message" if failure::non_null_error(event.error).is_some() => {
                return Err(failure::error_in_stream(frame.data));
            }
            "message" if event.choices.is_some() => {
                return Err(protocol_error("the response is in the Chat Completions format"));
            }
            kind => match kind.strip_prefix("response.") {
                Some(word @ ("completed" | "incomplete" | "failed" | "cancelled" | "done")) => {
                    let nothing = Response::default();
                    let response = event.response.0.as_deref().unwrap_or(&nothing);
                    self.on_terminal_event(word, response, turn)?;
                    return Ok(FrameOutcome::Done);
                }
                Some("created") => {
                    self.on_event(kind, &event, turn)?;
                    self.created = CreatedEvent::new(frame.data, kind);
                }
                Some(_) => self.on_event(kind, &event, turn)?,
                None => {}
            },
        }
        if self.items.exceeds_item_limit() {
            turn.exceed_item_limit();
        }
        Ok(FrameOutcome::Continue)
    }
}

/// Returns the kind and the complete text of the part that an end event contains.
fn text_of_part<'a>(part: &'a MessagePart<'_>) -> Option<(TextKind, &'a str)> {
    match part.r#type.or_empty() {
        "output_text" => Some((TextKind::Text, part.text.or_empty())),
        "refusal" => Some((TextKind::Refusal, part.refusal.or_empty())),
        "summary_text" => Some((TextKind::Summary, part.text.or_empty())),
        "reasoning_text" => Some((TextKind::Trace, part.text.or_empty())),
        _ => None,
    }
}
