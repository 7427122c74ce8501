//! What the encoded items depend on beside themselves, and what is known after them.

use crate::provider::context::Key;

/// The model, on which depends what goes back.
#[derive(Clone, PartialEq)]
pub(super) struct CacheKey(pub(super) String);

impl Key for CacheKey {
    type State = EncodedPrefix;
}

/// What is known where nothing waits.
#[derive(Clone, Default)]
pub(super) struct EncodedPrefix {
    /// The id of the reasoning of this turn that was sent last.
    pub(super) sent: Option<String>,
    /// The item before was of a turn that did not complete.
    pub(super) interrupted: bool,
}
