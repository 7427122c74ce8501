//! Decodes a response's lines into a turn.

mod calls;
mod frames;

use self::calls::Calls;
use self::frames::Line;
use crate::error::Error;
use crate::item::{ProviderData, StopReason};
use crate::provider::codec::decode::{Decode, FrameOutcome};
use crate::provider::codec::failure::{self, protocol_error};
use crate::provider::codec::frame_template::FrameTemplate;
use crate::provider::codec::logprobs::read_tokens;
use crate::provider::codec::turn_ending::common_stop_reason;
use crate::request::ToolNames;
use crate::sse::Frame;
use crate::turn::{ReasoningKind, TurnBuilder};
use crate::usage::Usage;

/// The item key of a turn's text. Item keys are fixed because the API has no item indices.
const TEXT_ITEM_KEY: u32 = 0;
const REASONING_ITEM_KEY: u32 = 1;

/// Decodes response lines from Ollama's native API. The decoder is pure and performs no I/O.
///
/// A line with `"done": true` ends the turn. A turn without a `"done": true` line is incomplete. A
/// tool call without an id is assigned an id that is unique in the history.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The requested model. The turn's reasoning is sent back only to this model.
    model: String,
    calls: Calls,
    usage: Usage,
    /// Whether the reasoning item's provider data has already been set.
    is_reasoning_bound: bool,
    template: FrameTemplate<TextKind>,
}

/// The kind of text in a line that contains only text.
#[derive(Clone, Copy, Debug)]
enum TextKind {
    Text,
    Thinking,
}

impl Decoder {
    /// Creates a decoder for a response from `model`.
    pub fn new(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }

    /// Sets the names of the tools, which calls are converted back to.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the provider uses it"))]
    pub(super) fn with_tool_names(mut self, names: ToolNames) -> Self {
        self.calls.tool_names = names;
        self
    }

    fn on_line(&mut self, line: &Line<'_>, turn: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        if let Some(error) = line.error() {
            return Err(failure::error_in_stream(error.get()));
        }
        turn.set_provider(super::PROVIDER_NAME);
        turn.set_model(line.model.or_empty());
        if let Some(message) = &line.message.0 {
            if let Some(thought) = message.thinking.non_empty() {
                TextKind::Thinking.push(thought, turn);
                self.bind_reasoning_to_model(turn);
            }
            TextKind::Text.push(message.content.or_empty(), turn);
            self.calls.push(message.tool_calls, turn)?;
        }
        if let Some(raw) = line.logprobs {
            turn.push_logprobs(read_tokens(raw));
        }
        if line.has_counts() {
            line.update_usage(&mut self.usage);
            turn.set_usage(self.usage);
        }
        if !line.is_done() {
            return Ok(FrameOutcome::Continue);
        }
        self.calls.end_open_call(turn);
        let raw = line.done_reason.or_empty();
        turn.stop(self.stop_reason(raw)?, raw);
        Ok(FrameOutcome::Done)
    }

    /// Sets the provider data of the reasoning item, so that the reasoning is sent back only to the
    /// model that wrote it.
    fn bind_reasoning_to_model(&mut self, turn: &mut TurnBuilder) {
        if !std::mem::replace(&mut self.is_reasoning_bound, true) {
            let data = ProviderData::new(super::PROVIDER_NAME, &self.model, serde_json::json!({}));
            turn.set_reasoning_data(REASONING_ITEM_KEY, data);
        }
    }

    /// Converts a reason to a stop reason. Unknown reasons include `load` and `unload`, which the
    /// server sends if the request does not contain a message that the model can answer.
    fn stop_reason(&self, raw: &str) -> Result<StopReason, Error> {
        let reason = match raw {
            // Old servers do not send any stop reason.
            "" => StopReason::Stop,
            word => common_stop_reason(word)?,
        };
        Ok(match reason {
            // The API has no separate stop reason for tool calls.
            StopReason::Stop if !self.calls.is_empty() => StopReason::ToolCalls,
            reason => reason,
        })
    }
}

impl TextKind {
    fn push(self, text: &str, turn: &mut TurnBuilder) {
        match self {
            Self::Text => turn.push_text(TEXT_ITEM_KEY, text),
            Self::Thinking => {
                turn.push_reasoning(REASONING_ITEM_KEY, text, ReasoningKind::Trace);
            }
        }
    }
}

/// Returns the kind and the text of an applied line, or `None` if applying the same line with
/// different text could have effects other than adding that text.
fn repeatable_text<'a>(line: &'a Line<'_>) -> Option<(TextKind, &'a str)> {
    let message = line.message.0.as_ref()?;
    if line.is_done() || line.has_counts() || line.has_calls() || line.logprobs.is_some() {
        return None;
    }
    match (message.thinking.non_empty(), message.content.non_empty()) {
        (None, Some(text)) => Some((TextKind::Text, text)),
        (Some(thought), None) => Some((TextKind::Thinking, thought)),
        _ => None,
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        if let Some((kind, text)) = self.template.read(&frame) {
            kind.push(&text, turn);
            return Ok(FrameOutcome::Continue);
        }
        self.template.forget();
        let mut scratch = String::new();
        match Line::parse(frame.data, &mut scratch) {
            Ok(Some(line)) => {
                let outcome = self.on_line(&line, turn)?;
                if let Some((kind, text)) = repeatable_text(&line) {
                    self.template.remember(&frame, text, None, kind);
                }
                Ok(outcome)
            }
            Ok(None) => Ok(FrameOutcome::Continue),
            Err(error) => {
                Err(protocol_error(format!("a line cannot be read: {error}")).with_source(error))
            }
        }
    }

    /// Returns an error for a call that arrives after the end of the turn, because the call would
    /// otherwise be lost silently.
    fn after_done(
        &mut self,
        frame: Frame<'_>,
        _turn: &mut TurnBuilder,
    ) -> Result<FrameOutcome, Error> {
        let mut scratch = String::new();
        let line = Line::parse(frame.data, &mut scratch).ok().flatten();
        match line.is_some_and(|line| line.has_calls()) {
            true => Err(protocol_error("a tool call came after the end")),
            false => Ok(FrameOutcome::Done),
        }
    }
}
