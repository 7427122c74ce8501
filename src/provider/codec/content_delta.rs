//! A piece of a turn's content, independent of any wire's events and frames.

use crate::turn::ReasoningKind;

/// A piece of a content block in a turn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ContentDelta {
    /// A piece of the block's text.
    Text(String),
    /// A piece of the text of a refusal.
    Refusal(String),
    /// A piece of the block's reasoning.
    Reasoning(ReasoningKind, String),
    /// The start of a tool call.
    CallStart {
        /// The call's id. If it is empty, the writer generates one, except on wires on which calls
        /// need no id.
        call_id: String,
        /// The name of the tool.
        name: String,
    },
    /// A piece of the call's arguments, which are JSON.
    CallArgs(String),
    /// The end of the call.
    CallEnd,
    /// A signature of the content block, after its last piece.
    Signature(SignatureTarget, String),
    /// Reasoning that exists only as opaque data, which is the whole block.
    HiddenReasoning(String),
}

/// The kind of block to which a signature belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureTarget {
    /// Text, or a refusal.
    Text,
    /// Reasoning.
    Reasoning,
    /// A tool call.
    Call,
}
