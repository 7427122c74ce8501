//! From frames to a turn.

use super::calls::Calls;
use super::wire::{Choice, Chunk, Delta, WireCall};
use crate::error::{Error, ErrorKind};
use crate::item::StopReason;
use crate::provider::decode::{Decode, Heard};
use crate::provider::failure;
use crate::sse::Frame;
use crate::turn::{ReasoningKind, TurnBuilder};

/// The items of a turn on this wire, which has no indices for them.
const TEXT: u32 = 0;
const REASONING: u32 = 1;
const REFUSAL: u32 = 2;

/// Reads the chunks of the Chat Completions wire. Pure: it does no I/O.
#[derive(Debug, Default)]
pub struct Decoder {
    calls: Calls,
    refused: bool,
    finished: bool,
}

impl Decoder {
    /// Makes a decoder for one answer.
    pub fn new() -> Self {
        Self::default()
    }

    fn choice(&mut self, choice: &Choice<'_>, turn: &mut TurnBuilder) -> Result<(), Error> {
        // What comes behind the finish reason is passed over.
        if !self.finished
            && let Some(delta) = &choice.delta.0
        {
            self.delta(delta, turn);
        }
        if turn.is_stopped()
            && let Some(delta) = &choice.delta.0
            && delta.tool_calls.0.iter().any(WireCall::adds_arguments)
        {
            let message = "arguments of a tool call came behind the finish reason";
            return Err(Error::new(ErrorKind::Protocol, message));
        }
        let Some(raw) = choice.finish_reason.get().filter(|raw| !raw.is_empty()) else {
            return Ok(());
        };
        if matches!(raw, "error" | "network_error") {
            let message = format!("the provider broke off with finish reason `{raw}`");
            return Err(Error::new(ErrorKind::Server, message));
        }
        if !std::mem::replace(&mut self.finished, true) {
            turn.stop(self.reason(raw), raw);
            // The wire has no end of a call of its own: it is the finish reason.
            self.calls.end(turn)?;
        }
        Ok(())
    }

    fn delta(&mut self, delta: &Delta<'_>, turn: &mut TurnBuilder) {
        // The same words under two names are said once.
        let thoughts = [&delta.reasoning_content, &delta.reasoning, &delta.reasoning_text];
        let thought = thoughts.into_iter().find_map(|text| text.get().filter(|t| !t.is_empty()));
        let thought = thought.or(delta.content.thinking.as_deref());
        turn.reasoning(REASONING, thought.unwrap_or_default(), ReasoningKind::Trace);
        turn.text(TEXT, delta.content.text.as_deref().unwrap_or_default());
        if let Some(refusal) = delta.refusal.get().filter(|text| !text.is_empty()) {
            self.refused = true;
            turn.refusal(REFUSAL, refusal);
        }
        for call in &delta.tool_calls.0 {
            self.calls.push(call, turn);
        }
    }

    fn reason(&self, raw: &str) -> StopReason {
        match raw {
            // The vendor's refusals say `stop`.
            "stop" | "end" | "eos" | "end_turn" if self.refused => StopReason::Refusal,
            "stop" | "end" | "eos" | "end_turn" => StopReason::Stop,
            "tool_calls" | "function_call" => StopReason::ToolCalls,
            "length" | "max_tokens" => StopReason::MaxTokens,
            "content_filter" => StopReason::ContentFilter,
            "model_context_window_exceeded" => StopReason::ContextWindow,
            other => StopReason::Other(other.to_owned()),
        }
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<Heard, Error> {
        if frame.data.trim() == "[DONE]" {
            return Ok(Heard::LastWord);
        }
        if frame.data.trim().is_empty() {
            return Ok(Heard::More);
        }
        let mut room = String::new();
        let chunk: Chunk<'_> =
            crate::provider::lenient::read(frame.data, &mut room).map_err(|error| {
                Error::new(ErrorKind::Protocol, format!("a chunk is not JSON: {error}"))
                    .with_source(error)
            })?;
        if let Some(error) =
            chunk.error.filter(|error| !matches!(error.get(), "null" | "\"\"" | "false"))
        {
            return Err(failure::in_stream(error.get()));
        }
        turn.provider(super::NAME);
        turn.response_id(chunk.id.or_empty());
        turn.model(chunk.model.or_empty());
        if let Some(choice) = &chunk.choices.0 {
            self.choice(choice, turn)?;
            if let Some(usage) = &choice.usage.0 {
                turn.usage(usage.usage());
            }
        }
        if let Some(usage) = &chunk.usage.0 {
            turn.usage(usage.usage());
        }
        Ok(Heard::More)
    }

    fn finish(&mut self, _: &mut TurnBuilder) -> Result<(), Error> {
        Ok(())
    }
}
