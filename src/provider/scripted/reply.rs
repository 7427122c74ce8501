//! What a scripted model says in one turn.

use std::time::Duration;

use crate::error::Error;
use crate::item::StopReason;
use crate::provider::content_delta::{ContentDelta, SignatureTarget};
use crate::turn::{ReasoningKind, TurnEvent};
use crate::usage::Usage;

/// One turn of a script, told step by step.
///
/// Unless told otherwise it ends with its terminal marker: `tool_calls` if it calls something,
/// `refusal` if it refuses, else `stop`. Text streams word by word, arguments in pieces.
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
    /// The block that the last move belongs to.
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

/// What a scripted model does next.
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
    /// Whether no move after it is ever made.
    fn is_last(&self) -> bool {
        match self {
            Self::Event(event) => matches!(event, TurnEvent::TurnComplete { .. }),
            Self::Stop { .. } | Self::Error(_) | Self::Cut | Self::Hang => true,
            Self::Delta(..) | Self::Usage(_) | Self::Retract(_) | Self::Delay(_) => false,
        }
    }
}

impl Reply {
    /// Says nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says `text`.
    pub fn text(text: &str) -> Self {
        Self::new().say(text)
    }

    /// Fails at once.
    pub fn error(error: Error) -> Self {
        Self::new().fail(error)
    }

    /// Says more, word by word.
    pub fn say(mut self, text: &str) -> Self {
        let index = self.enter_block(BlockKind::Text);
        self.add_text(index, text, ContentDelta::Text)
    }

    /// Refuses in these words.
    pub fn refuse(mut self, text: &str) -> Self {
        let index = self.enter_block(BlockKind::Refusal);
        self.is_refusal = true;
        self.add_text(index, text, ContentDelta::Refusal)
    }

    /// Thinks, word by word.
    pub fn think(self, text: &str) -> Self {
        self.add_reasoning(text, ReasoningKind::Trace)
    }

    /// Gives a summary of its thoughts, word by word.
    pub fn summarize(self, text: &str) -> Self {
        self.add_reasoning(text, ReasoningKind::Summary)
    }

    /// Thinks what is not shown: there is only this opaque data, which is to be sent back.
    ///
    /// On the wires it is a `redacted_thinking` block (Anthropic), a reasoning item with
    /// `encrypted_content` and no summary (Responses, if the request asks for it), a
    /// `reasoning.encrypted` detail (chat, as `OpenRouter` has it), and the signature of the next
    /// part that is said (Gemini).
    pub fn think_hidden(mut self, data: &str) -> Self {
        self.current_block = None;
        let index = self.enter_block(BlockKind::Reasoning(ReasoningKind::Trace));
        (self.current_block, self.signable_block) = (None, None);
        self.add_deltas(index, [ContentDelta::HiddenReasoning(data.to_owned())])
    }

    /// Signs what it did last: its thoughts, its text or its call. The signature is to be sent
    /// back with that, byte for byte. What was not said cannot be signed.
    ///
    /// On the wires a signature of thoughts is that of the `thinking` block (Anthropic), the
    /// `encrypted_content` of the item (Responses, if the request asks for it), that of a
    /// `reasoning.text` detail (chat, as `OpenRouter` has it), and that of the next part that is
    /// said (Gemini). A call can be signed on Gemini and on the chat wire as Gemini speaks it, text
    /// on Gemini only.
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
        // What comes next is another block: nothing is added to what is signed.
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

    /// Calls a tool. The call gets an id when it is streamed.
    pub fn call(self, name: &str, arguments: impl Into<serde_json::Value>) -> Self {
        self.call_raw("", name, &arguments.into().to_string())
    }

    /// Calls a tool under an id, with arguments that may be anything, also no JSON.
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

    /// Begins a call and is cut off in the middle of its arguments.
    pub fn call_unfinished(mut self, call_id: &str, name: &str, arguments: &str) -> Self {
        self = self.call_raw(call_id, name, arguments);
        self.steps.pop();
        self
    }

    /// Says what the turn cost so far.
    pub fn usage(self, usage: Usage) -> Self {
        self.with_step(ReplyStep::Usage(usage))
    }

    /// Emits an event as it is.
    pub fn event(self, event: TurnEvent) -> Self {
        self.with_step(ReplyStep::Event(event))
    }

    /// Voids what was said so far and starts over.
    pub fn retract(mut self, why: &str) -> Self {
        self.steps.push(ReplyStep::Retract(why.to_owned()));
        (self.current_block, self.signable_block) = (None, None);
        (self.has_calls, self.is_refusal) = (false, false);
        self
    }

    /// Ends the turn for this reason. What comes behind it is never said.
    pub fn stop(self, reason: StopReason) -> Self {
        let raw = reason.as_str().to_owned();
        self.with_step(ReplyStep::Stop { reason, raw })
    }

    /// Fails here.
    pub fn fail(self, error: Error) -> Self {
        self.with_step(ReplyStep::Error(error))
    }

    /// Ends here without a terminal marker.
    pub fn cut(self) -> Self {
        self.with_step(ReplyStep::Cut)
    }

    /// Is silent for a time.
    pub fn delay(self, time: Duration) -> Self {
        self.with_step(ReplyStep::Delay(time))
    }

    /// Is silent for ever.
    pub fn hang(self) -> Self {
        self.with_step(ReplyStep::Hang)
    }

    /// What was scripted so far.
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

    /// The index of the block that a move of this kind belongs to.
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

/// Cuts a text into pieces of a dozen characters.
fn split_into_pieces(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text.chars();
    std::iter::from_fn(move || {
        let piece: String = rest.by_ref().take(12).collect();
        (!piece.is_empty()).then_some(piece)
    })
}
