//! A call of the turn that is put together.

use crate::item::ProviderData;

/// A call of this turn, as the wire names it and as it is known here.
#[derive(Debug)]
pub(super) struct CallState {
    pub(super) key: u32,
    pub(super) wire_id: String,
    pub(super) call_id: String,
    /// Set while a doubled id is held back: nothing of it was emitted yet.
    pub(super) held: Option<Held>,
    pub(super) ended: bool,
    pub(super) dropped: bool,
    /// Where it stands among the items, once it is emitted.
    pub(super) block: Option<usize>,
    /// Matched with a call of a turn that came ready-made.
    pub(super) matched: bool,
}

/// What is held back of a call.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) data: Option<ProviderData>,
}
