//! A call of the turn that is put together.

use crate::item::ProviderData;

/// A call of this turn, as the wire names it and as it is known here.
#[derive(Debug)]
pub(super) struct CallState {
    pub(super) key: u32,
    pub(super) wire_id: String,
    pub(super) call_id: String,
    /// Set while a doubled id is held back: nothing of it was emitted yet.
    pub(super) held_call: Option<HeldCall>,
    pub(super) has_ended: bool,
    pub(super) is_dropped: bool,
    /// Where it stands among the items, once it is emitted.
    pub(super) block_index: Option<usize>,
    /// Matched with a call of a turn that came ready-made.
    pub(super) is_matched: bool,
}

/// What is held back of a call.
#[derive(Debug)]
pub(super) struct HeldCall {
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) data: Option<ProviderData>,
}
