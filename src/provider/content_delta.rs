//! A part of a turn's content, independent of the events and frames of any wire.

use crate::turn::ReasoningKind;

/// A part of a content block in a turn.
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
    /// A signature for the content block.
    Signature(SignatureTarget, String),
    /// Reasoning that exists only as opaque data.
    HiddenReasoning(String),
}

/// The kind of block that a signature belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureTarget {
    Text,
    Reasoning,
    Call,
}
