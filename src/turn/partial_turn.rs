//! An incomplete turn, assembled from the events received so far.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::item::{Item, ItemFlag, ItemKind, ProviderData, ToolCall};
use crate::small_map::SmallMap;
use crate::turn::{TokenLogprob, TurnEvent};
use crate::usage::{Billing, Usage};

/// A turn that did not complete. It contains all of the parts that arrived.
///
/// A partial turn is the source of an [`ErrorKind::IncompleteTurn`] error, and of any other error
/// that ends a turn after part of it has arrived. [`Error::find_source`] finds the partial turn in
/// an error. Unlike `Turn`, this type has no `calls` method, because the calls in a partial
/// turn must not run.
///
/// A partial turn can also be assembled directly from turn events by calling
/// [`absorb`](Self::absorb) with each event.
#[derive(Clone, Debug, Default)]
pub struct PartialTurn {
    pub(super) blocks: Vec<Block>,
    pub(super) model: Option<String>,
    /// The index of the newest block of text or reasoning for each key.
    newest_block_by_key: SmallMap<BlockKey, usize>,
    pub(super) usage: Usage,
    pub(super) response_id: Option<String>,
    pub(super) billing: Option<Box<Billing>>,
    pub(super) logprobs: Vec<TokenLogprob>,
    cause: Option<Arc<dyn StdError + Send + Sync>>,
}

/// A part of the turn that becomes an item.
///
/// The order of the fields keeps those that a delta of text uses in one cache line.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Block {
    pub(super) key: BlockKey,
    /// Whether a call's arguments are complete.
    pub(super) has_ended: bool,
    pub(super) item: Item,
}

/// Identifies the block to which an event belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BlockKey {
    Text(u32),
    Reasoning(u32),
    /// A tool call. The call id in the block's item identifies the call.
    Call,
    Other,
}

/// Limits the nesting depth of provider data, so that a stored turn can be deserialized again.
fn limit_data_depth(data: ProviderData) -> ProviderData {
    ProviderData { value: data.value.limit_depth(), ..data }
}

impl PartialTurn {
    /// Adds the turn's next event. A `Retracted` event clears the turn and its usage. A
    /// `TurnComplete` event has no effect.
    pub fn absorb(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::TextDelta { index, text } | TurnEvent::RefusalDelta { index, text } => {
                self.push_text(*index, text);
            }
            TurnEvent::ReasoningDelta { index, text, .. } => self.push_reasoning(*index, text),
            TurnEvent::ToolCallStart { call_id, name } => {
                self.push_call(ToolCall {
                    call_id: call_id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                });
            }
            TurnEvent::ToolCallArgsDelta { call_id, delta } => {
                if let Some(call) = self.call_mut(call_id) {
                    call.arguments.push_str(delta);
                }
            }
            TurnEvent::ToolCallEnd { call_id } => {
                if let Some(block) = self.blocks.iter_mut().rfind(|b| b.is_call(call_id)) {
                    block.has_ended = true;
                }
            }
            TurnEvent::UsageUpdate { usage } => self.usage = *usage,
            TurnEvent::Retracted { .. } => *self = Self::default(),
            TurnEvent::Retrying { .. } | TurnEvent::TurnComplete { .. } => {}
        }
    }

    /// Returns whether the turn contains neither items nor usage. There is then nothing to keep or
    /// to charge for.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.usage == Usage::default()
    }

    /// Returns the items received so far, in the form in which they are added to a history. Each
    /// item is marked as interrupted.
    pub fn items(&self) -> Vec<Item> {
        let items = self.blocks.iter().map(|block| &block.item);
        items.map(|item| item.clone().with_flag(ItemFlag::Interrupted)).collect()
    }

    /// Returns the text that has been received so far, including refusals but not reasoning.
    pub fn text(&self) -> String {
        self.blocks.iter().filter_map(|block| block.item.as_text()).collect()
    }

    /// Returns the token usage of the turn as of the provider's last report. It is zero if the
    /// provider has reported none, although tokens were used.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the name of the model that answered, as reported by the provider.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the provider's id for the response, if the provider has sent it.
    pub fn response_id(&self) -> Option<&str> {
        self.response_id.as_deref()
    }

    /// Converts the partial turn to the error for a turn that ended without a terminal marker.
    pub(crate) fn into_error(mut self, cause: Option<Error>) -> Error {
        let message = match &cause {
            None => "the answer broke off before it was complete".to_owned(),
            Some(cause) => format!("the turn was cut off: {cause}"),
        };
        let request_id = cause.as_ref().and_then(Error::request_id).map(str::to_owned);
        self.cause = cause.map(|cause| Arc::new(cause) as _);
        let error = Error::new(ErrorKind::IncompleteTurn, message).with_source(self);
        match request_id {
            Some(id) => error.with_request_id(id),
            None => error,
        }
    }

    /// Sets the error that cut off the turn, which becomes the source of this error.
    pub(super) fn with_cause(mut self, cause: Option<Arc<dyn StdError + Send + Sync>>) -> Self {
        self.cause = cause;
        self
    }

    pub(super) fn push_text(&mut self, index: u32, piece: &str) {
        let block =
            self.open_block(BlockKey::Text(index), || ItemKind::Text { text: String::new() });
        if let ItemKind::Text { text } = &mut block.item.kind {
            text.push_str(piece);
        }
    }

    pub(super) fn push_reasoning(&mut self, index: u32, piece: &str) {
        let new = || ItemKind::Reasoning { text: String::new() };
        if let ItemKind::Reasoning { text } =
            &mut self.open_block(BlockKey::Reasoning(index), new).item.kind
        {
            text.push_str(piece);
        }
    }

    pub(super) fn push_call(&mut self, call: ToolCall) {
        let item = Item::new(ItemKind::ToolCall(call));
        self.push_block(Block { key: BlockKey::Call, item, has_ended: false });
    }

    pub(super) fn push_other(&mut self, data: ProviderData) {
        self.push_block(Block {
            key: BlockKey::Other,
            item: Item::provider_item(limit_data_depth(data)),
            has_ended: true,
        });
    }

    /// Adds a block. Since most turns have only one block, capacity for more blocks is not reserved
    /// until the second block is added.
    fn push_block(&mut self, block: Block) {
        if self.blocks.is_empty() {
            self.blocks.reserve_exact(1);
        }
        self.blocks.push(block);
    }

    pub(super) fn call_mut(&mut self, call_id: &str) -> Option<&mut ToolCall> {
        self.blocks.iter_mut().rev().find_map(|block| match &mut block.item.kind {
            ItemKind::ToolCall(call) if call.call_id == call_id => Some(call),
            _ => None,
        })
    }

    pub(super) fn block_mut(&mut self, key: BlockKey) -> Option<&mut Block> {
        self.newest_block_by_key.get(&key).and_then(|at| self.blocks.get_mut(*at))
    }

    pub(super) fn attach_data(&mut self, key: BlockKey, data: ProviderData) -> bool {
        let block = self.block_mut(key);
        let found = block.is_some();
        if let Some(block) = block {
            block.item.provider_data = Some(Arc::new(limit_data_depth(data)));
        }
        found
    }

    /// Finds the block with this key, or adds a new block. The newest block is checked first,
    /// because consecutive deltas usually belong to the same block.
    pub(super) fn open_block(
        &mut self,
        key: BlockKey,
        new: impl FnOnce() -> ItemKind,
    ) -> &mut Block {
        let newest = self.blocks.len().wrapping_sub(1);
        let at = match self.blocks.last() {
            Some(last) if last.key == key => newest,
            _ => match self.newest_block_by_key.get(&key) {
                Some(at) => *at,
                None => {
                    self.push_block(Block { key, item: Item::new(new()), has_ended: false });
                    self.newest_block_by_key.insert(key, newest.wrapping_add(1));
                    newest.wrapping_add(1)
                }
            },
        };
        &mut self.blocks[at]
    }
}

impl Block {
    fn is_call(&self, call_id: &str) -> bool {
        self.item.as_tool_call().is_some_and(|call| call.call_id == call_id)
    }
}

impl fmt::Display for PartialTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.blocks.len() {
            0 => f.write_str("no item of the turn had been received"),
            1 => f.write_str("1 item of the turn had begun"),
            n => write!(f, "{n} items of the turn had begun"),
        }
    }
}

impl StdError for PartialTurn {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn StdError + 'static))
    }
}
