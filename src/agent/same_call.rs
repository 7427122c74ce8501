//! Compares the calls of a model.

use serde_json::Value;

use crate::item::{ToolCall, from_bounded_json};
use crate::tool::Rationale;

/// Returns whether both calls call the same tool with the same arguments. The model's rationale is
/// not compared.
pub(in crate::agent) fn is_same_call(one: &ToolCall, other: &ToolCall) -> bool {
    one.name == other.name && ParsedArgs::from_call(one).equals_args_of(other)
}

/// A call's arguments without the model's rationale, which is ignored when calls are compared.
pub(in crate::agent) struct ParsedArgs<'a> {
    raw_json: &'a str,
    parsed: Option<Value>,
}

impl<'a> ParsedArgs<'a> {
    pub(in crate::agent) fn from_call(call: &'a ToolCall) -> Self {
        Self { raw_json: &call.arguments, parsed: parse_call_args(call) }
    }

    pub(in crate::agent) fn equals_args_of(&self, other: &ToolCall) -> bool {
        self.raw_json == other.arguments
            || (self.parsed.is_some() && self.parsed == parse_call_args(other))
    }
}

fn parse_call_args(call: &ToolCall) -> Option<Value> {
    from_bounded_json(&Rationale::split_arguments(call.arguments_or_empty_object()).1).ok()
}
