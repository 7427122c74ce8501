//! Builds a turn from the pieces that a decoder pushes, and returns the turn's events.

use std::collections::VecDeque;

use crate::item::{History, ItemKind, ProviderData, StopReason};
use crate::turn::builder::call_index::CallIndex;
use crate::turn::builder::call_state::CallState;
use crate::turn::partial_turn::BlockKey;
use crate::turn::{PartialTurn, ReasoningKind, Text, TokenLogprob, TurnEvent};
use crate::usage::{Billing, Usage, is_standard_tier};

/// Builds a turn from the pieces that a decoder pushes. The decoder then takes the events of the
/// turn from the builder. The last event contains the finished turn.
///
/// Call ids are made unique within the history and the turn before `ToolCallStart` is emitted. An
/// empty id becomes `call_<turn>_<n>`, and an id that the history already contains becomes
/// `<id>_dup<k>`. If a second call starts with an id that was already used in this turn, the second
/// call's events are held back until the call ends. If both calls have the same name and arguments,
/// the second call is then dropped; otherwise, it is emitted under a new id.
///
/// A turn's calls may run only if [`complete`](Self::complete) created the turn.
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
///
/// The fields that a piece of text uses come first, so that they share cache lines.
#[derive(Debug, Default)]
#[repr(C)]
pub struct TurnBuilder {
    /// Whether the turn is complete or has failed. Such a turn accepts no more input.
    pub(super) is_finished: bool,
    /// Whether a `TurnComplete` event was emitted.
    pub(super) is_completed: bool,
    /// The size limit that the turn exceeded, if any.
    pub(super) limit_exceeded: Option<LimitExceeded>,
    /// The total number of bytes of text, reasoning, arguments, ids, names and provider data in
    /// this attempt.
    pub(super) used_bytes: usize,
    pub(super) max_bytes: MaxTurnBytes,
    pub(super) events: VecDeque<TurnEvent>,
    pub(super) partial: PartialTurn,
    pub(super) provider: &'static str,
    pub(super) history_ids: Option<History>,
    pub(super) calls: Vec<CallState>,
    pub(super) call_index: CallIndex,
    pub(super) stop_reason: Option<(StopReason, Option<String>)>,
    /// The maximum number of output tokens, if the request sets one.
    pub(super) max_output_tokens: Option<u32>,
}

/// A limit on the size of a turn.
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

/// The maximum number of items in a turn, which is far more than models produce. Without this
/// limit, a server that never stops sending could exhaust all memory.
pub(crate) const MAX_ITEMS: usize = 16_384;

impl TurnBuilder {
    /// The default maximum size of a turn, in bytes: 64 MiB. To change the maximum, use
    /// [`with_max_bytes`](Self::with_max_bytes).
    pub(crate) const DEFAULT_MAX_BYTES: usize = 64 << 20;

    /// Creates a builder for a turn without a history. Call ids are unique only within the turn.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a builder for the turn that follows a history. The builder does not reuse call ids
    /// from the history.
    pub(crate) fn for_history(history: &History) -> Self {
        Self { history_ids: Some(history.clone()), ..Self::default() }
    }

    /// Sets the maximum total size of text, reasoning and arguments, in bytes. The default is 64
    /// MiB. Ids, names and provider data also count towards the maximum, but retracted attempts do
    /// not.
    ///
    /// The first piece that would exceed the limit is rejected, along with everything that follows.
    /// The turn then ends with an error of kind [`TooLarge`](crate::ErrorKind::TooLarge).
    pub(crate) fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.set_max_bytes(max_bytes);
        self
    }

    pub(crate) fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = MaxTurnBytes(max_bytes);
    }

    /// Tells the builder the maximum number of output tokens that the request allows, which is set
    /// in [`Options::max_output_tokens`]. `None`, the default, means that the maximum is unknown.
    ///
    /// Some servers report `stop` or `tool_calls` even if the answer was cut off by the limit on
    /// output tokens. The builder assumes that the answer was cut off if the turn used at least
    /// `tokens` output tokens and contains a call whose arguments are incomplete or invalid JSON.
    /// The turn then completes with the stop reason [`StopReason::MaxTokens`], and none of its
    /// calls may run. The raw stop reason does not change. If the maximum or the number of tokens
    /// used is unknown, the server's stop reason is used. The builder cannot detect a truncation
    /// that leaves valid JSON, such as empty arguments.
    ///
    /// [`Options::max_output_tokens`]: crate::request::Options::max_output_tokens
    pub(crate) fn with_max_output_tokens(mut self, tokens: impl Into<Option<u32>>) -> Self {
        self.set_max_output_tokens(tokens.into());
        self
    }

    pub(crate) fn set_max_output_tokens(&mut self, tokens: Option<u32>) {
        self.max_output_tokens = tokens;
    }

    /// Sets the provider name for the provider data that the builder itself adds.
    pub fn set_provider(&mut self, name: &'static str) {
        self.provider = name;
    }

    /// Sets the name of the model that answers. Only the first non-empty name is used.
    pub fn set_model(&mut self, model: &str) {
        if !model.is_empty() && self.partial.model.is_none() {
            self.partial.model = Some(model.to_owned());
        }
    }

    /// Sets the provider's id for the response. Only the first non-empty id is used.
    pub fn set_response_id(&mut self, id: &str) {
        if !id.is_empty() && self.partial.response_id.is_none() {
            self.partial.response_id = Some(id.to_owned());
        }
    }

    /// Sets the service tier that served the request; see [`Billing::set_service_tier`]. An empty
    /// name has no effect.
    pub fn set_service_tier(&mut self, tier: &str) {
        if !tier.is_empty() && (self.partial.billing.is_some() || !is_standard_tier(tier)) {
            self.billing().set_service_tier(tier);
        }
    }

    /// Sets the number of calls of a tool that ran on the provider's servers. The count replaces
    /// the earlier count for this tool.
    pub fn set_server_tool_calls(&mut self, tool: &str, calls: u64) {
        if calls == 0 && self.partial.billing.is_none() {
            return;
        }
        self.billing().set_server_tool_calls(tool, calls);
    }

    /// Sets the number of tokens of a kind that may have another price; see
    /// [`Billing::set_tokens_of_kind`].
    pub fn set_tokens_of_kind(&mut self, kind: &str, tokens: u64) {
        if tokens == 0 && self.partial.billing.is_none() {
            return;
        }
        self.billing().set_tokens_of_kind(kind, tokens);
    }

    /// Sets the model, the id of the response, the token usage and the facts about the price that
    /// another builder for the same turn has, unless they are set. The larger usage is the later
    /// one.
    pub(crate) fn describe_like(&mut self, other: &Self) {
        let (partial, known) = (&mut self.partial, &other.partial);
        partial.model = partial.model.take().or_else(|| known.model.clone());
        partial.response_id = partial.response_id.take().or_else(|| known.response_id.clone());
        partial.billing = partial.billing.take().or_else(|| known.billing.clone());
        if known.usage.total() > partial.usage.total() {
            self.set_usage(known.usage);
        }
    }

    /// Returns what the provider reports about the attempt's price beside the token usage.
    pub(crate) fn billing(&mut self) -> &mut Billing {
        self.partial.billing.get_or_insert_default()
    }

    /// Appends the log probabilities of tokens. Decoders report them in the order of the tokens.
    pub fn push_logprobs(&mut self, tokens: Vec<TokenLogprob>) {
        let bytes = tokens.iter().map(TokenLogprob::byte_len).sum();
        if !self.is_finished && self.count_bytes(bytes) {
            self.partial.logprobs.extend(tokens);
        }
    }

    /// Pushes a piece of text. Empty pieces are ignored.
    ///
    /// Pieces with the same `index` form one item, even if other pieces come between them. A piece
    /// with a new index starts a new item. Text and refusals share the same indices, whereas
    /// reasoning uses separate indices. Items are in the order in which their first pieces were
    /// pushed.
    pub fn push_text(&mut self, index: u32, piece: &str) {
        if self.count_text(piece) {
            self.partial.push_text(index, piece);
            self.events.push_back(TurnEvent::TextDelta { index, text: piece.into() });
            self.check_item_limit();
        }
    }

    /// Pushes a piece of a refusal. Refusals and text share the same indices.
    pub fn push_refusal(&mut self, index: u32, piece: &str) {
        if self.count_text(piece) {
            self.partial.push_text(index, piece);
            self.events.push_back(TurnEvent::RefusalDelta { index, text: piece.into() });
            self.check_item_limit();
        }
    }

    /// Pushes a piece of reasoning. Pieces with the same `index` form one item. An empty piece has
    /// no effect.
    pub fn push_reasoning(&mut self, index: u32, piece: &str, kind: ReasoningKind) {
        if self.count_text(piece) {
            self.partial.push_reasoning(index, piece);
            let text = Text::from(piece);
            self.events.push_back(TurnEvent::ReasoningDelta { index, text, kind });
            self.check_item_limit();
        }
    }

    /// Sets the data that later requests to the same model send back verbatim with a text item. If
    /// the item does not exist, this method has no effect.
    pub fn set_text_data(&mut self, index: u32, data: ProviderData) {
        if self.count_data_bytes(&data) {
            self.partial.attach_data(BlockKey::Text(index), data);
        }
    }

    /// Marks a text item as commentary, so that its text is not part of the answer. If the item
    /// does not exist, this method has no effect.
    pub(crate) fn mark_commentary(&mut self, index: u32) {
        if let Some(block) =
            self.partial.block_mut(BlockKey::Text(index)).filter(|_| !self.is_finished)
        {
            block.item.commentary = true;
        }
    }

    /// Sets the provider data that is sent back verbatim with a reasoning item. If the item does
    /// not exist, this method creates it, because some providers send a signature without any text.
    pub fn set_reasoning_data(&mut self, index: u32, data: ProviderData) {
        if self.count_data_bytes(&data) {
            let new = || ItemKind::Reasoning { text: String::new() };
            self.partial.open_block(BlockKey::Reasoning(index), new);
            self.partial.attach_data(BlockKey::Reasoning(index), data);
            self.check_item_limit();
        }
    }

    /// Pushes an item that only its provider understands. The item is stored verbatim.
    pub fn push_provider_item(&mut self, data: ProviderData) {
        if self.count_data_bytes(&data) {
            self.partial.push_other(data);
            self.check_item_limit();
        }
    }

    /// Sets the token usage of the attempt so far, replacing the previous value.
    pub fn set_usage(&mut self, usage: Usage) {
        if !self.is_finished && self.partial.usage != usage {
            self.partial.usage = usage;
            self.events.push_back(TurnEvent::UsageUpdate { usage });
        }
    }

    /// Returns the token usage of the attempt so far.
    pub fn usage(&self) -> Usage {
        self.partial.usage
    }

    /// Returns whether any output from the model has arrived in this attempt. Token usage does not
    /// count as output.
    pub(crate) fn has_started(&self) -> bool {
        self.is_completed || !self.partial.blocks.is_empty() || !self.calls.is_empty()
    }

    /// Returns whether an event with output from the model is waiting to be taken. Token usage does
    /// not count as output.
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

    /// Returns whether any event is waiting to be taken.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Removes and returns the next waiting event, if any. A [sealed](crate::stream::seal) stream
    /// calls this method before it polls its source again.
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
