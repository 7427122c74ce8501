//! What a scripted model says in one turn.

use std::time::Duration;

use crate::error::Error;
use crate::item::StopReason;
use crate::turn::{ReasoningKind, TurnEvent};
use crate::usage::Usage;

/// One turn of a script, told step by step.
///
/// Unless told otherwise it ends with its terminal marker: `tool_calls` if it calls something,
/// else `stop`. Text streams word by word, arguments in pieces.
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
    moves: Vec<Move>,
    /// The block that the last move belongs to.
    block: Option<(Block, u32)>,
    blocks: u32,
    calls: bool,
    over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Block {
    Text,
    Refusal,
    Reasoning(ReasoningKind),
    Call,
}

/// What a scripted model does next.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    Text { index: u32, piece: String },
    Refusal { index: u32, piece: String },
    Reasoning { index: u32, piece: String, kind: ReasoningKind },
    CallStart { index: u32, call_id: String, name: String },
    CallArgs { index: u32, piece: String },
    CallEnd { index: u32 },
    Usage(Usage),
    Event(TurnEvent),
    Retract(String),
    Stop { reason: StopReason, raw: String },
    Error(Error),
    Cut,
    Delay(Duration),
    Hang,
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
        let index = self.enter(Block::Text);
        let pieces = text.split_inclusive(' ').map(str::to_owned);
        self.moves.extend(pieces.map(|piece| Move::Text { index, piece }));
        self
    }

    /// Refuses in these words.
    pub fn refuse(mut self, text: &str) -> Self {
        let index = self.enter(Block::Refusal);
        let pieces = text.split_inclusive(' ').map(str::to_owned);
        self.moves.extend(pieces.map(|piece| Move::Refusal { index, piece }));
        self
    }

    /// Thinks, word by word.
    pub fn think(mut self, text: &str) -> Self {
        let kind = ReasoningKind::Trace;
        let index = self.enter(Block::Reasoning(kind));
        let pieces = text.split_inclusive(' ').map(str::to_owned);
        self.moves.extend(pieces.map(|piece| Move::Reasoning { index, piece, kind }));
        self
    }

    /// Calls a tool. The call gets an id when it is streamed.
    pub fn call(self, name: &str, arguments: impl Into<serde_json::Value>) -> Self {
        self.call_raw("", name, &arguments.into().to_string())
    }

    /// Calls a tool under an id, with arguments that may be anything, also no JSON.
    pub fn call_raw(mut self, call_id: &str, name: &str, arguments: &str) -> Self {
        self.block = None;
        let index = self.enter(Block::Call);
        self.calls = true;
        let (call_id, name) = (call_id.to_owned(), name.to_owned());
        self.moves.push(Move::CallStart { index, call_id, name });
        self.moves.extend(pieces(arguments).map(|piece| Move::CallArgs { index, piece }));
        self.moves.push(Move::CallEnd { index });
        self.block = None;
        self
    }

    /// Begins a call and is cut off in the middle of its arguments.
    pub fn call_unfinished(mut self, call_id: &str, name: &str, arguments: &str) -> Self {
        self = self.call_raw(call_id, name, arguments);
        self.moves.pop();
        self
    }

    /// Says what the turn cost so far.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.moves.push(Move::Usage(usage));
        self
    }

    /// Emits an event as it is.
    pub fn event(mut self, event: TurnEvent) -> Self {
        self.over |= matches!(event, TurnEvent::TurnComplete { .. });
        self.moves.push(Move::Event(event));
        self
    }

    /// Voids what was said so far and starts over.
    pub fn retract(mut self, why: &str) -> Self {
        self.moves.push(Move::Retract(why.to_owned()));
        (self.block, self.calls) = (None, false);
        self
    }

    /// Ends the turn for this reason. What comes behind it is never said.
    pub fn stop(mut self, reason: StopReason) -> Self {
        let raw = reason.as_str().to_owned();
        self.moves.push(Move::Stop { reason, raw });
        self.over = true;
        self
    }

    /// Fails here.
    pub fn fail(mut self, error: Error) -> Self {
        self.moves.push(Move::Error(error));
        self.over = true;
        self
    }

    /// Ends here without a terminal marker.
    pub fn cut(mut self) -> Self {
        self.moves.push(Move::Cut);
        self.over = true;
        self
    }

    /// Is silent for a time.
    pub fn delay(mut self, time: Duration) -> Self {
        self.moves.push(Move::Delay(time));
        self
    }

    /// Is silent for ever.
    pub fn hang(mut self) -> Self {
        self.moves.push(Move::Hang);
        self.over = true;
        self
    }

    pub(crate) fn into_moves(mut self) -> Vec<Move> {
        if !self.over {
            let reason = if self.calls { StopReason::ToolCalls } else { StopReason::Stop };
            self = self.stop(reason);
        }
        self.moves
    }

    /// The index of the block that a move of this kind belongs to.
    fn enter(&mut self, block: Block) -> u32 {
        match self.block {
            Some((current, index)) if current == block => index,
            _ => {
                let index = self.blocks;
                self.blocks += 1;
                self.block = Some((block, index));
                index
            }
        }
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
fn pieces(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text.chars();
    std::iter::from_fn(move || {
        let piece: String = rest.by_ref().take(12).collect();
        (!piece.is_empty()).then_some(piece)
    })
}
