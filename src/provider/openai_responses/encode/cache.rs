//! What is known after the encoded items.

/// What is known where nothing waits.
#[derive(Clone, Default)]
pub(super) struct EncodedPrefix {
    /// The id of the reasoning of this turn that was sent last.
    pub(super) last_reasoning_id: Option<String>,
    /// The item before was of a turn that did not complete.
    pub(super) was_interrupted: bool,
}
