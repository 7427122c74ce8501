//! The state of a call in the turn that is being built.

use crate::item::ProviderData;

/// A call in the turn, with both its id in the wire format and its final id.
#[derive(Debug)]
pub(super) struct CallState {
    pub(super) key: u32,
    pub(super) wire_id: String,
    pub(super) call_id: String,
    /// The content of a call that is held back because its id is a duplicate. While this field is
    /// set, none of the call's events have been emitted.
    pub(super) held_call: Option<HeldCall>,
    pub(super) has_ended: bool,
    pub(super) is_dropped: bool,
    /// The index of the call's item, once the call has been emitted.
    pub(super) block_index: Option<usize>,
    /// Whether the call has been matched with a call in a finished turn.
    pub(super) is_matched: bool,
}

/// The content of a call that is held back.
#[derive(Debug)]
pub(super) struct HeldCall {
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) data: Option<ProviderData>,
}
