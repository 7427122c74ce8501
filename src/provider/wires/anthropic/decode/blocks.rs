//! The state of a content block between its start and its end.

use serde_json::value::RawValue;

use super::frames::{Block as WireBlock, Delta};
use super::opaque_block::{OpaqueBlock, sendable_json};
use crate::error::Error;
use crate::item::{ProviderData, RawJson};
use crate::provider::codec::failure::protocol_error;
use crate::provider::codec::lenient::{Lenient, read_lenient};
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::wires::anthropic::dialect::Dialect;
use crate::provider::wires::anthropic::passthrough::{PROVIDER_NAME, field_data};
use crate::request::ToolNames;
use crate::turn::{ReasoningKind, TurnBuilder};

/// A content block that has started and has not ended yet.
#[derive(Debug)]
pub(super) enum Block {
    Text {
        citations: Vec<RawJson>,
    },
    Thinking {
        /// The signature from the start event, which is used only if no signature delta arrives.
        initial_text: String,
        signature: String,
    },
    ToolUse {
        /// The input from the start event, which is used only if no input delta arrives.
        input: Option<String>,
        has_deltas: bool,
    },
    Opaque(OpaqueBlock),
}

/// The kind of text that a delta adds to a content block.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeltaKind {
    Text,
    Thinking,
    InputJson,
}

impl DeltaKind {
    pub(super) fn push(self, key: u32, text: &str, turn: &mut TurnBuilder) {
        match self {
            Self::Text => turn.push_text(key, text),
            Self::Thinking => turn.push_reasoning(key, text, ReasoningKind::Trace),
            Self::InputJson => turn.push_tool_call_args(key, text),
        }
    }
}

impl Block {
    /// Starts a block. Returns `None` if the block is already complete or if the value is not a
    /// block.
    pub(super) fn start(
        key: u32,
        raw: &RawValue,
        model: &str,
        tool_names: &ToolNames,
        turn: &mut TurnBuilder,
    ) -> Result<Option<Self>, Error> {
        let mut scratch = String::new();
        // A value that is not an object is not a block.
        let block = read_lenient::<Lenient<WireBlock<'_>>>(raw.get(), &mut scratch)
            .ok()
            .and_then(|block| block.0);
        let Some(block) = block else { return Ok(None) };
        let begun = match block.r#type.or_empty() {
            "text" => {
                turn.push_text(key, block.text.or_empty());
                let citations = block.citations.map_or("[]", RawValue::get);
                let citations: Vec<&RawValue> = serde_json::from_str(citations).unwrap_or_default();
                Self::Text {
                    citations: citations.iter().map(|raw| sendable_json(raw.get())).collect(),
                }
            }
            "thinking" => {
                turn.push_reasoning(key, block.thinking.or_empty(), ReasoningKind::Trace);
                let at_start = block.signature.or_empty().to_owned();
                Self::Thinking { initial_text: at_start, signature: String::new() }
            }
            "redacted_thinking" => {
                turn.set_reasoning_data(
                    key,
                    ProviderData::new(PROVIDER_NAME, model, sendable_json(raw.get())),
                );
                return Ok(None);
            }
            "tool_use" if block.name.or_empty().is_empty() => {
                return Err(protocol_error("a tool call has no name"));
            }
            "tool_use" => {
                let name = tool_names.own_name(block.name.or_empty());
                turn.start_tool_call(key, block.id.or_empty(), name);
                if let Some(caller) = block.caller {
                    turn.set_tool_call_data(
                        key,
                        field_data(model, "caller", &sendable_json(caller.get())),
                    );
                }
                let input = block.input.map(RawValue::get);
                let input = input.filter(|input| !matches!(*input, "null" | "{}"));
                Self::ToolUse { input: input.map(str::to_owned), has_deltas: false }
            }
            _ => Self::Opaque(OpaqueBlock::new(raw)),
        };
        Ok(Some(begun))
    }

    /// Applies a delta to the block. A delta whose kind does not match the block is ignored rather
    /// than reported as an error, because new kinds may appear (the API documentation says "handle
    /// unknown event types gracefully").
    pub(super) fn push_delta(
        &mut self,
        key: u32,
        kind: &str,
        delta: &Delta<'_>,
        turn: &mut TurnBuilder,
    ) {
        match (kind, self) {
            ("text_delta", Self::Text { .. }) => {
                DeltaKind::Text.push(key, delta.text.or_empty(), turn);
            }
            ("thinking_delta", Self::Thinking { .. }) => {
                DeltaKind::Thinking.push(key, delta.thinking.or_empty(), turn);
            }
            ("signature_delta", Self::Thinking { signature, .. }) => {
                signature.push_str(delta.signature.or_empty());
            }
            ("input_json_delta", Self::ToolUse { has_deltas: deltas, .. }) => {
                *deltas |= !delta.partial_json.or_empty().is_empty();
                DeltaKind::InputJson.push(key, delta.partial_json.or_empty(), turn);
            }
            ("input_json_delta", Self::Opaque(opaque)) => {
                opaque.input_json.push_str(delta.partial_json.or_empty());
            }
            (
                "citations_delta",
                Self::Text { citations } | Self::Opaque(OpaqueBlock { citations, .. }),
            ) => citations.extend(delta.citation.map(|citation| sendable_json(citation.get()))),
            _ => {}
        }
    }

    /// Returns the kind and the text of an applied delta, or `None` if the delta does anything
    /// other than add text.
    pub(super) fn repeatable_text<'a>(&self, delta: &'a Delta<'_>) -> Option<(DeltaKind, &'a str)> {
        match (delta.r#type.or_empty(), self) {
            ("text_delta", Self::Text { .. }) => Some((DeltaKind::Text, delta.text.get()?)),
            ("thinking_delta", Self::Thinking { .. }) => {
                Some((DeltaKind::Thinking, delta.thinking.get()?))
            }
            ("input_json_delta", Self::ToolUse { .. }) => {
                Some((DeltaKind::InputJson, delta.partial_json.get()?))
            }
            _ => None,
        }
    }

    /// Applies a delta to a compaction block. Such a delta contains fields that other deltas lack.
    pub(super) fn push_compaction_delta(&mut self, delta: OrderedFields<'_>) {
        if let Self::Opaque(opaque) = self {
            opaque.push_compaction_delta(delta);
        }
    }

    /// Returns whether this block can receive pieces of JSON.
    pub(super) fn accepts_json(&self) -> bool {
        matches!(self, Self::ToolUse { .. } | Self::Opaque(_))
    }

    /// Returns whether this block is a tool call that the caller must execute.
    pub(super) fn is_call(&self) -> bool {
        matches!(self, Self::ToolUse { .. })
    }

    /// Returns whether the content received so far is valid even if the block's end event does not
    /// arrive.
    pub(super) fn may_stay_open(&self) -> bool {
        matches!(self, Self::Text { .. } | Self::Thinking { .. })
    }

    pub(super) fn finish(self, key: u32, model: &str, dialect: Dialect, turn: &mut TurnBuilder) {
        match self {
            Self::Text { citations } => {
                if !citations.is_empty() {
                    turn.set_text_data(key, field_data(model, "citations", &citations));
                }
            }
            Self::Thinking { initial_text: at_start, signature } => {
                let signature = if signature.is_empty() { at_start } else { signature };
                // An empty signature shows that the thinking is complete.
                if !signature.is_empty() || dialect == Dialect::Unsigned {
                    turn.set_reasoning_data(key, field_data(model, "signature", &signature));
                }
            }
            Self::ToolUse { input, has_deltas: deltas } => {
                if let Some(input) = input.filter(|_| !deltas) {
                    turn.push_tool_call_args(key, &input);
                }
                turn.end_tool_call(key);
            }
            Self::Opaque(opaque) => {
                turn.push_provider_item(ProviderData::new(
                    PROVIDER_NAME,
                    model,
                    opaque.into_json(),
                ));
            }
        }
    }
}
