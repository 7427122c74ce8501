//! Provider-specific blocks and other values that are sent back unchanged.

use serde_json::value::{RawValue, to_raw_value};

use crate::item::{RawJson, nesting_depth};
use crate::provider::codec::lenient::{LenientStr, repair_json};
use crate::provider::codec::ordered_fields::OrderedFields;

/// The maximum nesting depth of a value that is stored as JSON. A more deeply nested value is
/// stored as a string that contains its JSON text. The maximum is well below the 128 levels that
/// JSON parsers allow, because a recorded run nests the value a few levels deeper.
const MAX_DEPTH: usize = 64;

/// A block that only the provider interprets, such as a server tool's call or result, a compaction,
/// a fallback, or a block of an unknown type. An `OpaqueBlock` stores the JSON from the block's
/// start event and the content that the block's deltas add.
#[derive(Debug, Default)]
pub(super) struct OpaqueBlock {
    start_json: Box<str>,
    /// The server tool's input, as JSON text.
    pub(super) input_json: String,
    content: String,
    pub(super) citations: Vec<RawJson>,
    /// The latest values of the other fields in the block's deltas.
    other_fields: OrderedFields<'static>,
}

impl OpaqueBlock {
    pub(super) fn new(began: &RawValue) -> Self {
        Self { start_json: began.get().into(), ..Self::default() }
    }

    /// Applies a delta to a compaction block. The delta contains a piece of the block's content and
    /// fields that are sent back verbatim.
    pub(super) fn push_compaction_delta(&mut self, delta: OrderedFields<'_>) {
        for (name, value) in delta.into_iter() {
            match (&*name, value.get()) {
                ("type", _) | (_, "null") => {}
                ("content", piece) => {
                    let piece: LenientStr<'_> = serde_json::from_str(piece).unwrap_or_default();
                    self.content.push_str(piece.or_empty());
                }
                (name, _) => self.other_fields.set(name, value.into_owned()),
            }
        }
    }

    /// Returns the complete block as JSON, with its keys in their original order.
    pub(super) fn into_json(self) -> RawJson {
        let fields = || {
            let read = OrderedFields::parse(&self.start_json);
            read.or_else(|| {
                Some(OrderedFields::parse(&repair_json(&self.start_json)?)?.into_owned())
            })
        };
        let added = !(self.input_json.is_empty()
            && self.content.is_empty()
            && self.citations.is_empty()
            && self.other_fields.is_empty());
        let Some(mut fields) = added.then(fields).flatten() else {
            return sendable_json(&self.start_json);
        };
        // Truncated input is stored as a string.
        let input = match serde_json::from_str::<&RawValue>(&self.input_json) {
            Ok(whole) => Ok(whole.to_owned()),
            Err(_) => to_raw_value(&self.input_json),
        };
        for (name, value, is_there) in [
            ("input", input, !self.input_json.is_empty()),
            ("content", to_raw_value(&self.content), !self.content.is_empty()),
            ("citations", to_raw_value(&self.citations), !self.citations.is_empty()),
        ] {
            if let Ok(value) = value
                && is_there
            {
                fields.set(name, value);
            }
        }
        for (name, value) in self.other_fields.into_iter() {
            fields.set(&name, value.into_owned());
        }
        serde_json::to_string(&fields)
            .map_or_else(|_| sendable_json(&self.start_json), |whole| sendable_json(&whole))
    }
}

/// Converts a value to a form that can be sent back. Unpaired surrogates are replaced, and a value
/// that is nested too deeply to be parsed again is converted to a string that contains its JSON
/// text.
pub(super) fn sendable_json(text: &str) -> RawJson {
    let read = || {
        // `repair_json` expects an object.
        let value = || {
            let whole = repair_json(&format!("{{\"value\":{text}}}"))?;
            RawJson::parse(OrderedFields::parse(&whole)?.get("value")?.get()).ok()
        };
        RawJson::parse(text).ok().or_else(value)
    };
    let is_read_again = nesting_depth(text) <= MAX_DEPTH;
    let read = is_read_again.then(read).flatten();
    read.unwrap_or_else(|| RawJson::from(serde_json::Value::from(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_too_deeply_nested_json_becomes_a_string() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(sendable_json(&nested(MAX_DEPTH)).as_str(), nested(MAX_DEPTH));
        assert_eq!(
            sendable_json(&nested(MAX_DEPTH + 1)).as_str(),
            format!("\"{}\"", nested(MAX_DEPTH + 1))
        );
        let text = format!(r#"{{"a":"\"{}"}}"#, nested(200));
        assert_eq!(sendable_json(&text).as_str(), text);
        assert_eq!(sendable_json(r#"{"a":1,"a":2}"#).as_str(), r#"{"a":1,"a":2}"#);
        assert_eq!(sendable_json(r#"{"a":"\ud83d"}"#).as_str(), "{\"a\":\"\u{fffd}\"}");
        assert_eq!(sendable_json(r#"["\ud83d",1]"#).as_str(), "[\"\u{fffd}\",1]");
    }
}
