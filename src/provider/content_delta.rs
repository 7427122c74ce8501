//! A piece of a turn's content, independent of any wire's events and frames.

use crate::turn::ReasoningKind;

/// A piece of a content block in a turn.
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

/// The kind of block to which a signature belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureTarget {
    Text,
    Reasoning,
    Call,
}
