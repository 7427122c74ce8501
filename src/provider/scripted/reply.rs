//! The script of one turn.

use std::time::Duration;

use crate::error::Error;
use crate::item::StopReason;
use crate::provider::content_delta::{ContentDelta, SignatureTarget};
use crate::turn::{ReasoningKind, TurnEvent};
use crate::usage::Usage;

/// The script of one turn, built step by step.
///
/// Unless an end is scripted, the turn completes: with the stop reason `tool_calls` if it has
/// calls, `refusal` if it refuses, and `stop` otherwise. Text is streamed word by word, call
/// arguments in pieces of a few characters.
///
/// ```
/// use serde_json::json;
/// use turnstream::provider::Reply;
///
/// let reply = Reply::new()
///     .think("Two files to read.")
///     .say("I'll read both.")
///     .call("read_file", json!({ "path": "a.txt" }))
///     .call("read_file", json!({ "path": "b.txt" }));
/// # drop(reply);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Reply {
    steps: Vec<ReplyStep>,
    /// The block that the last step belongs to.
    current_block: Option<(BlockKind, u32)>,
    /// The block that a signature would belong to.
    signable_block: Option<(BlockKind, u32)>,
    block_count: u32,
    has_calls: bool,
    is_refusal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BlockKind {
    Text,
    Refusal,
    Reasoning(ReasoningKind),
    Call,
}

/// One step of a scripted turn.
#[derive(Clone, Debug)]
pub(crate) enum ReplyStep {
    /// A piece of the block with this index.
    Delta(u32, ContentDelta),
    Usage(Usage),
    Event(TurnEvent),
    Retract(String),
    Stop {
        reason: StopReason,
        raw: String,
    },
    Error(Error),
    Cut,
    Delay(Duration),
    Hang,
}

impl ReplyStep {
    /// Whether the turn ends with this step.
    fn is_last(&self) -> bool {
        match self {
            Self::Event(event) => matches!(event, TurnEvent::TurnComplete { .. }),
            Self::Stop { .. } | Self::Error(_) | Self::Cut | Self::Hang => true,
            Self::Delta(..) | Self::Usage(_) | Self::Retract(_) | Self::Delay(_) => false,
        }
    }
}

impl Reply {
    /// Creates an empty reply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a reply with the text `text`.
    pub fn text(text: &str) -> Self {
        Self::new().say(text)
    }

    /// Creates a reply that fails immediately.
    pub fn error(error: Error) -> Self {
        Self::new().fail(error)
    }

    /// Adds text, word by word.
    pub fn say(mut self, text: &str) -> Self {
        let index = self.enter_block(BlockKind::Text);
        self.add_text(index, text, ContentDelta::Text)
    }

    /// Refuses with this text.
    pub fn refuse(mut self, text: &str) -> Self {
        let index = self.enter_block(BlockKind::Refusal);
        self.is_refusal = true;
        self.add_text(index, text, ContentDelta::Refusal)
    }

    /// Adds reasoning, word by word.
    pub fn think(self, text: &str) -> Self {
        self.add_reasoning(text, ReasoningKind::Trace)
    }

    /// Adds a summary of the reasoning, word by word.
    pub fn summarize(self, text: &str) -> Self {
        self.add_reasoning(text, ReasoningKind::Summary)
    }

    /// Adds reasoning without visible text: it consists only of this opaque data, which must be
    /// sent back.
    ///
    /// On the wires it is a `redacted_thinking` block (Anthropic), a reasoning item with
    /// `encrypted_content` and no summary (Responses, if the request includes it), a
    /// `reasoning.encrypted` detail (Chat Completions, in `OpenRouter`'s format), or the signature
    /// of the next part (Gemini).
    pub fn think_hidden(mut self, data: &str) -> Self {
        self.current_block = None;
        let index = self.enter_block(BlockKind::Reasoning(ReasoningKind::Trace));
        (self.current_block, self.signable_block) = (None, None);
        self.add_deltas(index, [ContentDelta::HiddenReasoning(data.to_owned())])
    }

    /// Signs the last block: reasoning, text or a call. The signature must be sent back with that
    /// block, byte for byte. Does nothing if the last step is not such a block.
    ///
    /// On the wires, a signature of reasoning is that of the `thinking` block (Anthropic), the
    /// `encrypted_content` of the item (Responses, if the request includes it), that of a
    /// `reasoning.text` detail (Chat Completions, in `OpenRouter`'s format), or that of the next
    /// part (Gemini). A call can be signed on Gemini, and on Chat Completions in Gemini's format;
    /// text only on Gemini.
    ///
    /// ```
    /// use turnstream::provider::Reply;
    ///
    /// let reply = Reply::new().think("A sum.").sign("c2lnbmVk").call_raw("c1", "add", "{}");
    /// # drop(reply);
    /// ```
    pub fn sign(mut self, signature: &str) -> Self {
        let of = match self.signable_block {
            Some((BlockKind::Text | BlockKind::Refusal, index)) => {
                Some((SignatureTarget::Text, index))
            }
            Some((BlockKind::Reasoning(_), index)) => Some((SignatureTarget::Reasoning, index)),
            Some((BlockKind::Call, index)) => Some((SignatureTarget::Call, index)),
            None => None,
        };
        // The next step starts a new block, so that nothing is added to the signed one.
        (self.current_block, self.signable_block) = (None, None);
        match of {
            Some((of, index)) => {
                self.add_deltas(index, [ContentDelta::Signature(of, signature.to_owned())])
            }
            None => self,
        }
    }

    fn add_reasoning(mut self, text: &str, kind: ReasoningKind) -> Self {
        let index = self.enter_block(BlockKind::Reasoning(kind));
        self.add_text(index, text, |piece| ContentDelta::Reasoning(kind, piece))
    }

    /// Calls a tool. The call's id is generated when it is streamed.
    pub fn call(self, name: &str, arguments: impl Into<serde_json::Value>) -> Self {
        self.call_raw("", name, &arguments.into().to_string())
    }

    /// Calls a tool with the given id. The arguments may be any text, including invalid JSON.
    pub fn call_raw(mut self, call_id: &str, name: &str, arguments: &str) -> Self {
        self.current_block = None;
        let index = self.enter_block(BlockKind::Call);
        self.has_calls = true;
        let (call_id, name) = (call_id.to_owned(), name.to_owned());
        self.current_block = None;
        self.add_deltas(index, [ContentDelta::CallStart { call_id, name }])
            .add_deltas(index, split_into_pieces(arguments).map(ContentDelta::CallArgs))
            .add_deltas(index, [ContentDelta::CallEnd])
    }

    /// Starts a call that is cut off after `arguments`, without its end.
    pub fn call_unfinished(mut self, call_id: &str, name: &str, arguments: &str) -> Self {
        self = self.call_raw(call_id, name, arguments);
        self.steps.pop();
        self
    }

    /// Reports the usage of the turn so far.
    pub fn usage(self, usage: Usage) -> Self {
        self.with_step(ReplyStep::Usage(usage))
    }

    /// Emits an event unchanged.
    pub fn event(self, event: TurnEvent) -> Self {
        self.with_step(ReplyStep::Event(event))
    }

    /// Retracts the output so far and starts over.
    pub fn retract(mut self, why: &str) -> Self {
        self.steps.push(ReplyStep::Retract(why.to_owned()));
        (self.current_block, self.signable_block) = (None, None);
        (self.has_calls, self.is_refusal) = (false, false);
        self
    }

    /// Ends the turn with this stop reason. Later steps are ignored.
    pub fn stop(self, reason: StopReason) -> Self {
        let raw = reason.as_str().to_owned();
        self.with_step(ReplyStep::Stop { reason, raw })
    }

    /// Fails with this error.
    pub fn fail(self, error: Error) -> Self {
        self.with_step(ReplyStep::Error(error))
    }

    /// Ends the stream without completing the turn.
    pub fn cut(self) -> Self {
        self.with_step(ReplyStep::Cut)
    }

    /// Pauses for a duration.
    pub fn delay(self, time: Duration) -> Self {
        self.with_step(ReplyStep::Delay(time))
    }

    /// Waits forever.
    pub fn hang(self) -> Self {
        self.with_step(ReplyStep::Hang)
    }

    /// The steps so far.
    #[cfg(feature = "testing")]
    pub(crate) fn steps(&self) -> &[ReplyStep] {
        &self.steps
    }

    pub(crate) fn into_steps(mut self) -> Vec<ReplyStep> {
        if !self.steps.iter().any(ReplyStep::is_last) {
            let reason = match (self.has_calls, self.is_refusal) {
                (true, _) => StopReason::ToolCalls,
                (false, true) => StopReason::Refusal,
                (false, false) => StopReason::Stop,
            };
            self = self.stop(reason);
        }
        self.steps
    }

    fn with_step(mut self, next: ReplyStep) -> Self {
        self.steps.push(next);
        self
    }

    fn add_text(self, index: u32, text: &str, delta: impl Fn(String) -> ContentDelta) -> Self {
        let words = text.split_inclusive(' ').map(|word| delta(word.to_owned()));
        self.add_deltas(index, words)
    }

    fn add_deltas(mut self, index: u32, deltas: impl IntoIterator<Item = ContentDelta>) -> Self {
        self.steps.extend(deltas.into_iter().map(|delta| ReplyStep::Delta(index, delta)));
        self
    }

    /// The index of the block for a step of this kind; starts a new block if necessary.
    fn enter_block(&mut self, block: BlockKind) -> u32 {
        let index = match self.current_block {
            Some((current, index)) if current == block => index,
            _ => {
                let index = self.block_count;
                self.block_count += 1;
                self.current_block = Some((block, index));
                index
            }
        };
        self.signable_block = Some((block, index));
        index
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::text(&text)
    }
}

/// Splits a text into pieces of twelve characters.
fn split_into_pieces(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text.chars();
    std::iter::from_fn(move || {
        let piece: String = rest.by_ref().take(12).collect();
        (!piece.is_empty()).then_some(piece)
    })
}
