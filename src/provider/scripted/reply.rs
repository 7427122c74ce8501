//! A script for a single turn.

use std::time::Duration;

use crate::error::Error;
use crate::item::StopReason;
use crate::provider::codec::content_delta::{ContentDelta, SignatureTarget};
use crate::turn::{ReasoningKind, TurnEvent};
use crate::usage::{Billing, Usage};

/// A script for a single turn, built step by step.
///
/// Unless the script ends the turn explicitly, the turn completes after the last step. The default
/// stop reason is `tool_calls` if the reply contains tool calls, `refusal` if it contains a
/// refusal, and `stop` otherwise. Text is streamed word by word, and arguments are streamed a few
/// characters at a time.
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
    /// The content block to which the last step belongs.
    current_block: Option<(BlockKind, u32)>,
    /// The content block that the next call to [`sign`](Reply::sign) signs, if any.
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

/// A step of a [`Reply`], as a server that sends replies performs it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReplyStep {
    /// A piece of the content block with this index.
    Delta(u32, ContentDelta),
    /// The turn's token usage so far.
    Usage(Usage),
    /// The service tier and the calls of the provider's own tools. They have no form on
    /// any wire.
    Billing(Billing),
    /// An event that the turn yields unchanged. It has no form on any wire.
    Event(TurnEvent),
    /// Retracts the output so far, for this reason. It has no form on any wire.
    Retract(String),
    /// Completes the turn.
    Stop(StopReason),
    /// Ends the turn with an error.
    Error(Error),
    /// Ends the stream without completing the turn.
    Disconnect,
    /// Pauses the turn.
    Delay(Duration),
    /// Keeps the turn pending until the client disconnects.
    Hang,
}

impl ReplyStep {
    /// Returns whether the turn ends with this step.
    fn is_last(&self) -> bool {
        match self {
            Self::Event(event) => matches!(event, TurnEvent::TurnComplete { .. }),
            Self::Stop(_) | Self::Error(_) | Self::Disconnect | Self::Hang => true,
            Self::Delta(..)
            | Self::Usage(_)
            | Self::Billing(_)
            | Self::Retract(_)
            | Self::Delay(_) => false,
        }
    }
}

impl Reply {
    /// Creates an empty reply. Without any steps, its turn completes without text or calls.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a reply that consists of the given text, which is streamed word by word. Unless
    /// other steps are added, the turn then completes.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::new().say(text)
    }

    /// Creates a reply that fails immediately with this error.
    pub fn error(error: Error) -> Self {
        Self::new().fail(error)
    }

    /// Adds text, which is streamed word by word.
    pub fn say(mut self, text: impl AsRef<str>) -> Self {
        let index = self.enter_block(BlockKind::Text);
        self.add_text(index, text.as_ref(), ContentDelta::Text)
    }

    /// Adds a refusal with this text. Unless the reply has calls, the turn then ends with the stop
    /// reason `refusal`.
    pub fn refuse(mut self, text: impl AsRef<str>) -> Self {
        let index = self.enter_block(BlockKind::Refusal);
        self.is_refusal = true;
        self.add_text(index, text.as_ref(), ContentDelta::Refusal)
    }

    /// Adds reasoning, which is streamed word by word and is not signed; see [`sign`](Self::sign).
    pub fn think(self, text: impl AsRef<str>) -> Self {
        self.add_reasoning(text.as_ref(), ReasoningKind::Trace)
    }

    /// Adds a summary of the reasoning, which is streamed word by word.
    pub fn summarize(self, text: impl AsRef<str>) -> Self {
        self.add_reasoning(text.as_ref(), ReasoningKind::Summary)
    }

    /// Adds reasoning that has no visible text and consists only of opaque data. The opaque data
    /// must be sent back to the model.
    ///
    /// On the Anthropic wire, the data is sent as a `redacted_thinking` block. On the Responses
    /// wire, the data is sent as a reasoning item with `encrypted_content` and no summary, provided
    /// that the request includes encrypted content. On the Chat Completions wire, the data is sent
    /// as a `reasoning.encrypted` detail in `OpenRouter`'s format. On the Gemini wire, the data is
    /// sent as the signature of the next part.
    pub fn think_hidden(mut self, data: &str) -> Self {
        self.current_block = None;
        let index = self.enter_block(BlockKind::Reasoning(ReasoningKind::Trace));
        (self.current_block, self.signable_block) = (None, None);
        self.add_deltas(index, [ContentDelta::HiddenReasoning(data.to_owned())])
    }

    /// Signs the last block of the reply, which must be reasoning, text or a call. The signature
    /// must be sent back unchanged, together with the signed block. Does nothing if the reply's
    /// last step is not part of a block that can be signed.
    ///
    /// On the Anthropic wire, the signature of reasoning is sent with the `thinking` block. On the
    /// Responses wire, the signature of reasoning is sent as the `encrypted_content` of the
    /// reasoning item, if the request asks for encrypted content. On the Chat
    /// Completions wire, the signature of reasoning is sent in a `reasoning.text` detail in
    /// `OpenRouter`'s format. On the Gemini wire, the signature of reasoning is sent with the next
    /// part. A call can be signed on the Gemini wire, and in Gemini's format on the Chat
    /// Completions wire. Text can be signed only on the Gemini wire.
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
        // The next step starts a new block, so that nothing is added to the signed block.
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

    /// Adds a call to the tool `name`, whose arguments are streamed in pieces. The call id is
    /// generated when the call is streamed. Unless another step ends it, a reply with calls ends
    /// with the stop reason `tool_calls`.
    pub fn call(self, name: &str, arguments: impl Into<serde_json::Value>) -> Self {
        self.call_raw("", name, &arguments.into().to_string())
    }

    /// Adds a tool call with the given call id. The arguments can be any string, including invalid
    /// JSON.
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

    /// Adds a tool call that is cut off after `arguments` and never ends.
    pub fn call_unfinished(mut self, call_id: &str, name: &str, arguments: &str) -> Self {
        self = self.call_raw(call_id, name, arguments);
        self.steps.pop();
        self
    }

    /// Adds a report of the turn's token usage so far, which replaces the earlier report.
    pub fn usage(self, usage: Usage) -> Self {
        self.with_step(ReplyStep::Usage(usage))
    }

    /// Adds a report of the service tier and the calls of the provider's own tools.
    pub fn billing(self, billing: Billing) -> Self {
        self.with_step(ReplyStep::Billing(billing))
    }

    /// Adds an event that the turn yields unchanged.
    pub fn event(self, event: TurnEvent) -> Self {
        self.with_step(ReplyStep::Event(event))
    }

    /// Retracts the turn's output so far and restarts the turn.
    pub fn retract(mut self, why: &str) -> Self {
        self.steps.push(ReplyStep::Retract(why.to_owned()));
        (self.current_block, self.signable_block) = (None, None);
        (self.has_calls, self.is_refusal) = (false, false);
        self
    }

    /// Ends the turn with this stop reason. Steps added later are ignored. Without this step, the
    /// turn ends with `tool_calls`, `refusal` or `stop`, depending on its content.
    pub fn stop(self, reason: StopReason) -> Self {
        self.with_step(ReplyStep::Stop(reason))
    }

    /// Ends the turn with this error, after the output so far. If there is any, the error carries
    /// it as a [partial turn](crate::turn::PartialTurn).
    pub fn fail(self, error: Error) -> Self {
        self.with_step(ReplyStep::Error(error))
    }

    /// Ends the stream without completing the turn, as a broken connection does. The turn fails
    /// with an [`IncompleteTurn`](crate::ErrorKind::IncompleteTurn) error.
    pub fn disconnect(self) -> Self {
        self.with_step(ReplyStep::Disconnect)
    }

    /// Pauses the turn for the given duration, with tokio's timer, which a test can pause.
    pub fn delay(self, time: Duration) -> Self {
        self.with_step(ReplyStep::Delay(time))
    }

    /// Keeps the turn pending until the stream is dropped, for example to test an interrupt or a
    /// timeout.
    pub fn hang(self) -> Self {
        self.with_step(ReplyStep::Hang)
    }

    /// Returns the steps of the turn, up to the one that ends it. With
    /// [`TurnWriter`](crate::provider::server::TurnWriter), a server sends them on any wire.
    pub fn into_steps(mut self) -> Vec<ReplyStep> {
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

    /// Returns the index of the content block for a step of kind `block`, starting a new block if
    /// necessary.
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
