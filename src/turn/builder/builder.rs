//! What a turn is put together in: texts, reasoning, counts, and the events that come out.

use std::collections::VecDeque;

use crate::item::{History, ItemKind, ProviderData, StopReason};
use crate::turn::builder::call_index::CallIndex;
use crate::turn::builder::call_state::CallState;
use crate::turn::partial_turn::BlockKey;
use crate::turn::{PartialTurn, ReasoningKind, Text, TurnEvent};
use crate::usage::Usage;

/// Puts a turn together: decoders push what the wire says, events come out, at the end the turn.
///
/// It makes call ids unique against the history before it and within the turn, before
/// `ToolCallStart` is emitted: an empty id becomes `call_<turn>_<n>`, one that the history holds
/// `<id>_dup<k>`. A second start under an id of this turn is held back to its end: then it is
/// dropped if name and arguments are those of the first, else emitted whole under a new id.
///
/// Only [`complete`](Self::complete) makes a turn whose calls may run.
///
/// ```
/// use turnstream::turn::{StopReason, TurnBuilder, TurnEvent};
///
/// let mut turn = TurnBuilder::new();
/// turn.push_text(0, "Hel");
/// turn.push_text(0, "lo");
/// turn.stop(StopReason::Stop, "end_turn");
/// turn.complete()?;
/// let events: Vec<TurnEvent> = std::iter::from_fn(|| turn.next_event()).collect();
/// assert_eq!(events.len(), 3);
/// assert!(matches!(&events[2], TurnEvent::TurnComplete { turn } if turn.text() == "Hello"));
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct TurnBuilder {
    pub(super) history_ids: Option<History>,
    pub(super) provider: &'static str,
    pub(super) partial: PartialTurn,
    pub(super) calls: Vec<CallState>,
    pub(super) call_index: CallIndex,
    pub(super) stop_reason: Option<(StopReason, Option<String>)>,
    pub(super) events: VecDeque<TurnEvent>,
    /// Nothing is taken any more.
    pub(super) is_finished: bool,
    /// `TurnComplete` was pushed.
    pub(super) is_completed: bool,
    /// How many bytes the attempt has: text, reasoning, arguments, and what goes with them.
    pub(super) used_bytes: usize,
    pub(super) max_bytes: MaxTurnBytes,
    /// How many tokens the answer may have, if the request says so.
    pub(super) max_output_tokens: Option<u32>,
    /// What the turn has too much of.
    pub(super) limit_exceeded: Option<LimitExceeded>,
}

/// What a turn can have too much of.
#[derive(Clone, Copy, Debug)]
pub(super) enum LimitExceeded {
    Items,
    Bytes,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MaxTurnBytes(pub(super) usize);

impl Default for MaxTurnBytes {
    fn default() -> Self {
        Self(TurnBuilder::DEFAULT_MAX_BYTES)
    }
}

/// How many items a turn may have. No model writes as many; a server that never ends would fill
/// the memory.
pub(crate) const MAX_ITEMS: usize = 16_384;

impl TurnBuilder {
    /// How many bytes a turn may have unless [`with_max_bytes`](Self::with_max_bytes) says
    /// otherwise: 64 MiB.
    pub const DEFAULT_MAX_BYTES: usize = 64 << 20;

    /// Makes a builder that knows of no history: ids are unique within the turn only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a builder for the turn that follows a history, whose call ids are taken.
    pub fn for_history(history: &History) -> Self {
        Self { history_ids: Some(history.clone()), ..Self::default() }
    }

    /// Sets how many bytes of text, reasoning and arguments the turn may have together, 64 MiB unless
    /// set. Ids, names and provider data count as well, and nothing of an attempt that was retracted.
    ///
    /// The piece that would exceed it is not taken, nor anything after it: the turn ends with an error
    /// of kind [`TooLarge`](crate::ErrorKind::TooLarge).
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.set_max_bytes(max_bytes);
        self
    }

    pub(crate) fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = MaxTurnBytes(max_bytes);
    }

    /// Sets how many output tokens the request allows, its [`Options::max_output_tokens`]; unknown
    /// unless given.
    ///
    /// Some servers report `stop` or `tool_calls` where this limit cut the answer off. A turn with at
    /// least as many output tokens and a call whose arguments are not JSON, or were never written to
    /// their end, therefore completes as [`StopReason::MaxTokens`], and none of its calls may run; the
    /// raw stop reason stays the server's. Without a limit or a token count the server's reason holds.
    /// A cut that leaves valid JSON, such as empty arguments, cannot be detected.
    ///
    /// [`Options::max_output_tokens`]: crate::request::Options::max_output_tokens
    pub fn with_max_output_tokens(mut self, tokens: impl Into<Option<u32>>) -> Self {
        self.set_max_output_tokens(tokens.into());
        self
    }

    pub(crate) fn set_max_output_tokens(&mut self, tokens: Option<u32>) {
        self.max_output_tokens = tokens;
    }

    /// Says which wire this is, for the provider data that the builder itself adds.
    pub fn set_provider(&mut self, name: &'static str) {
        self.provider = name;
    }

    /// Says which model answers.
    pub fn set_model(&mut self, model: &str) {
        if !model.is_empty() && self.partial.model.is_none() {
            self.partial.model = Some(model.to_owned());
        }
    }

    /// Says the provider's id of the response.
    pub fn set_response_id(&mut self, id: &str) {
        if !id.is_empty() && self.partial.response_id.is_none() {
            self.partial.response_id = Some(id.to_owned());
        }
    }

    /// A piece of text. An empty one says nothing.
    ///
    /// Pieces with one `index` form one item, also with others between them; another index begins a new one. Texts
    /// and refusals share their indices, and reasoning has its own. Items stand in the order in which their first
    /// pieces came.
    pub fn push_text(&mut self, index: u32, piece: &str) {
        if self.count_text(piece) {
            self.partial.push_text(index, piece);
            self.events.push_back(TurnEvent::TextDelta { index, text: piece.into() });
            self.check_item_limit();
        }
    }

    /// A piece of a refusal.
    pub fn push_refusal(&mut self, index: u32, piece: &str) {
        if self.count_text(piece) {
            self.partial.push_text(index, piece);
            self.events.push_back(TurnEvent::RefusalDelta { index, text: piece.into() });
            self.check_item_limit();
        }
    }

    /// A piece of reasoning.
    pub fn push_reasoning(&mut self, index: u32, piece: &str, kind: ReasoningKind) {
        if self.count_text(piece) {
            self.partial.push_reasoning(index, piece);
            let text = Text::from(piece);
            self.events.push_back(TurnEvent::ReasoningDelta { index, text, kind });
            self.check_item_limit();
        }
    }

    /// What belongs to a text item and goes back verbatim. Nothing if there is no such item.
    pub fn set_text_data(&mut self, index: u32, data: ProviderData) {
        if self.count_data_bytes(&data) {
            self.partial.attach_data(BlockKey::Text(index), data);
        }
    }

    /// Says that a text item is commentary and not part of the answer. Nothing if there is no such
    /// item.
    pub fn mark_commentary(&mut self, index: u32) {
        if let Some(block) =
            self.partial.block_mut(BlockKey::Text(index)).filter(|_| !self.is_finished)
        {
            block.item.commentary = true;
        }
    }

    /// What belongs to a reasoning item and goes back verbatim. Makes the item if it is not there:
    /// some providers send a signature without any words.
    pub fn set_reasoning_data(&mut self, index: u32, data: ProviderData) {
        if self.count_data_bytes(&data) {
            let new = || ItemKind::Reasoning { text: String::new() };
            self.partial.open_block(BlockKey::Reasoning(index), new);
            self.partial.attach_data(BlockKey::Reasoning(index), data);
            self.check_item_limit();
        }
    }

    /// A provider's own item, kept verbatim.
    pub fn push_provider_item(&mut self, data: ProviderData) {
        if self.count_data_bytes(&data) {
            self.partial.push_other(data);
            self.check_item_limit();
        }
    }

    /// What the attempt has cost so far; replaces what was said before.
    pub fn set_usage(&mut self, usage: Usage) {
        if !self.is_finished && self.partial.usage != usage {
            self.partial.usage = usage;
            self.events.push_back(TurnEvent::UsageUpdate { usage });
        }
    }

    /// What was counted so far.
    pub fn usage(&self) -> Usage {
        self.partial.usage
    }

    /// Whether anything of the model's answer came in this attempt, and not only a count.
    pub(crate) fn has_started(&self) -> bool {
        self.is_completed || !self.partial.blocks.is_empty() || !self.calls.is_empty()
    }

    /// Whether a piece of the model's own answer waits to be taken out, and not only counts.
    pub(crate) fn has_output(&self) -> bool {
        self.events.iter().any(|event| match event {
            TurnEvent::TextDelta { .. }
            | TurnEvent::ReasoningDelta { .. }
            | TurnEvent::RefusalDelta { .. }
            | TurnEvent::ToolCallStart { .. }
            | TurnEvent::ToolCallArgsDelta { .. }
            | TurnEvent::ToolCallEnd { .. } => true,
            TurnEvent::UsageUpdate { .. }
            | TurnEvent::Retrying { .. }
            | TurnEvent::Retracted { .. }
            | TurnEvent::TurnComplete { .. } => false,
        })
    }

    /// Whether there is an event to take out.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the next event out.
    pub fn next_event(&mut self) -> Option<TurnEvent> {
        self.events.pop_front()
    }

    pub(super) fn count_text(&mut self, piece: &str) -> bool {
        !piece.is_empty() && self.count_bytes(piece.len())
    }

    pub(super) fn count_data_bytes(&mut self, data: &ProviderData) -> bool {
        self.count_bytes(data.value.as_str().len())
    }
}
