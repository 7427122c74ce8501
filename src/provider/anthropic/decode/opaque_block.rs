//! Blocks of the provider's own, and any other value that goes back as it came.

use serde_json::value::{RawValue, to_raw_value};

use crate::item::{Json, nesting_depth};
use crate::provider::lenient::{Str, repaired};
use crate::provider::ordered_fields::Fields;

/// What is nested deeper is kept as its text: a reader of JSON stops at 128 levels, and the value
/// stands some levels deep in the record of a run.
const MAX_DEPTH: usize = 64;

/// A block that only the provider understands: a server tool's call or result, a compaction, a
/// fallback, or a kind of a later version. Kept as it began, with what its deltas added.
#[derive(Debug, Default)]
pub(super) struct OpaqueBlock {
    began: Box<str>,
    /// Of a server tool.
    pub(super) input: String,
    content: String,
    pub(super) citations: Vec<Json>,
    /// Other fields of its deltas, the newest of each.
    others: Fields,
}

impl OpaqueBlock {
    pub(super) fn new(began: &RawValue) -> Self {
        Self { began: began.get().into(), ..Self::default() }
    }

    /// A delta of a compaction: a piece of its content, and what goes back verbatim.
    pub(super) fn compacted(&mut self, delta: Fields) {
        for (name, value) in delta.into_iter() {
            match (name.as_str(), value.get()) {
                ("type", _) | (_, "null") => {}
                ("content", piece) => {
                    let piece: Str<'_> = serde_json::from_str(piece).unwrap_or_default();
                    self.content.push_str(piece.or_empty());
                }
                (name, _) => self.others.set(name, value),
            }
        }
    }

    /// The whole block. The order of its keys stays.
    pub(super) fn ended(self) -> Json {
        let fields = || {
            let read = Fields::parse(&self.began);
            read.or_else(|| Fields::parse(&repaired(&self.began)?))
        };
        let added = !(self.input.is_empty()
            && self.content.is_empty()
            && self.citations.is_empty()
            && self.others.is_empty());
        let Some(mut fields) = added.then(fields).flatten() else { return kept(&self.began) };
        // An input that was cut off is kept as the text it is.
        let input = match serde_json::from_str::<&RawValue>(&self.input) {
            Ok(whole) => Ok(whole.to_owned()),
            Err(_) => to_raw_value(&self.input),
        };
        for (name, value, is_there) in [
            ("input", input, !self.input.is_empty()),
            ("content", to_raw_value(&self.content), !self.content.is_empty()),
            ("citations", to_raw_value(&self.citations), !self.citations.is_empty()),
        ] {
            if let Ok(value) = value
                && is_there
            {
                fields.set(name, value);
            }
        }
        for (name, value) in self.others.into_iter() {
            fields.set(&name, value);
        }
        serde_json::to_string(&fields).map_or_else(|_| kept(&self.began), |whole| kept(&whole))
    }
}

/// A value to send back. Half of a surrogate pair is made whole; what is nested too deep to be
/// read again is kept as a string that holds its text.
pub(super) fn kept(text: &str) -> Json {
    let read = || {
        // What is repaired is an object.
        let whole = || Fields::parse(&repaired(&format!("{{\"value\":{text}}}"))?);
        let value = || Json::parse(whole()?.get("value")?.get()).ok();
        Json::parse(text).ok().or_else(value)
    };
    let is_read_again = nesting_depth(text) <= MAX_DEPTH;
    let read = is_read_again.then(read).flatten();
    read.unwrap_or_else(|| Json::from(serde_json::Value::from(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_deep_becomes_text() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(kept(&nested(MAX_DEPTH)).as_str(), nested(MAX_DEPTH));
        assert_eq!(kept(&nested(MAX_DEPTH + 1)).as_str(), format!("\"{}\"", nested(MAX_DEPTH + 1)));
        let text = format!(r#"{{"a":"\"{}"}}"#, nested(200));
        assert_eq!(kept(&text).as_str(), text);
        assert_eq!(kept(r#"{"a":1,"a":2}"#).as_str(), r#"{"a":1,"a":2}"#);
        assert_eq!(kept(r#"{"a":"\ud83d"}"#).as_str(), "{\"a\":\"\u{fffd}\"}");
        assert_eq!(kept(r#"["\ud83d",1]"#).as_str(), "[\"\u{fffd}\",1]");
    }
}
