//! The encoder's state after the cached prefix.

/// The encoder state at a point in the input where no reasoning is pending.
#[derive(Clone, Default)]
pub(super) struct EncodedPrefix {
    /// The id of the last reasoning item sent in the current turn.
    pub(super) last_reasoning_id: Option<String>,
    /// Whether the previous item was interrupted.
    pub(super) was_interrupted: bool,
}
