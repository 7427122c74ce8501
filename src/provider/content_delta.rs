//! A piece of a turn's content, before it is an event or a frame.

use crate::turn::ReasoningKind;

/// A piece of one block of a turn's content.
#[derive(Clone, Debug)]
pub(crate) enum ContentDelta {
    Text(String),
    Refusal(String),
    Reasoning(ReasoningKind, String),
    CallStart {
        call_id: String,
        name: String,
    },
    CallArgs(String),
    CallEnd,
    /// A signature of the block.
    Signature(SignatureTarget, String),
    /// Reasoning that is only there as opaque data.
    HiddenReasoning(String),
}

/// The kind of block that a signature belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureTarget {
    Text,
    Reasoning,
    Call,
}
