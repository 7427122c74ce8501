//! Quickly decodes a frame that differs from an earlier frame in only one member.
//!
//! Many frames of a stream have the same members, apart from the one with the next piece of
//! content. A [`MemberTemplate`] keeps the bytes around this member's value, so that of a later
//! frame only the value is parsed.
//!
//! The result equals the parser's for the same reason as that of a
//! [`FrameTemplate`](crate::provider::codec::frame_template::FrameTemplate): after the same bytes,
//! the parser is in the same state, in which it expects a value. The value is parsed and ends where
//! its JSON ends, and the parser then reads the same bytes again.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::provider::codec::frame_template::{MAX_MISSES, for_each_member};

/// The bytes of a frame before and after the value of one of its members.
#[derive(Debug, Default)]
pub(in crate::provider) struct MemberTemplate {
    /// Empty until a frame has been remembered.
    before: String,
    after: String,
    misses: u8,
}

impl MemberTemplate {
    /// Returns the value of the member, if the frame is equal to the remembered frame apart from
    /// this value.
    pub(in crate::provider) fn read<'a, T: Deserialize<'a>>(&mut self, data: &'a str) -> Option<T> {
        if self.before.is_empty() {
            return None;
        }
        let rest = data.strip_prefix(&*self.before)?;
        let (value, len) = read_value(rest)?;
        if rest[len..] != self.after {
            return None;
        }
        self.misses = 0;
        Some(value)
    }

    /// Remembers a parsed frame whose other members have no effect if they are read again. A frame
    /// in which the member may be present twice is not remembered.
    pub(in crate::provider) fn remember(&mut self, data: &str, member: &str) {
        if self.misses == MAX_MISSES {
            return;
        }
        self.misses += 1;
        let mut starts = Vec::new();
        for_each_member(data.as_bytes(), 0, |key, start| {
            starts.extend((data[key] == *member).then_some(start));
        });
        let [start] = starts[..] else { return };
        let Some((IgnoredAny, len)) = read_value(&data[start..]) else { return };
        let (before, after) = (&data[..start], &data[start + len..]);
        // The member's key may be written with escapes.
        if !before.contains('\\') && !after.contains('\\') {
            before.clone_into(&mut self.before);
            after.clone_into(&mut self.after);
        }
    }
}

/// Parses the value at the start of `data`. Returns the value and its length.
fn read_value<'a, T: Deserialize<'a>>(data: &'a str) -> Option<(T, usize)> {
    let mut values = serde_json::Deserializer::from_str(data).into_iter();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn template(data: &str) -> MemberTemplate {
        let mut template = MemberTemplate::default();
        template.remember(data, "delta");
        template
    }

    #[test]
    fn only_the_value_of_the_member_is_parsed() {
        let mut template = template(r#"{"id":"a","delta":{"x":1},"usage":null}"#);
        for value in [json!({}), json!([1, "}"]), json!("a\"b"), json!(null), json!(-2.5)] {
            let data = format!(r#"{{"id":"a","delta":{value},"usage":null}}"#);
            assert_eq!(template.read::<Value>(&data), Some(value));
        }
    }

    #[test]
    fn a_frame_that_differs_outside_of_the_value_is_left_to_the_parser() {
        let mut template = template(r#"{"id":"a","delta":{"x":1},"usage":null}"#);
        for data in [
            r#"{"id":"b","delta":{},"usage":null}"#,
            r#"{"id":"a","delta":{},"usage":{}}"#,
            r#"{"id":"a","delta":{},"usage":null"#,
            r#"{"id":"a","delta":{},"usage":null} "#,
            r#"{"id":"a","delta":{},"more":1,"usage":null}"#,
            r#"{"id":"a","delta":{}},"usage":null}"#,
            r#"{"id":"a","delta":{,"usage":null}"#,
            r#"{"id":"a","delta":"#,
            "",
        ] {
            assert_eq!(template.read::<Value>(data), None, "{data}");
        }
    }

    #[test]
    fn a_frame_without_the_member_or_with_a_second_one_is_not_remembered() {
        for data in [
            r#"{"id":"a"}"#,
            r#"{"inner":{"delta":1}}"#,
            r#"["delta",1]"#,
            r#"{"delta":"#,
            r#"{"delta":1,"delta":2}"#,
            r#"{"delta":1,"d\u0065lta":2}"#,
        ] {
            let mut template = template(data);
            assert!(template.before.is_empty() && template.read::<Value>(data).is_none(), "{data}");
        }
    }

    #[test]
    fn no_frame_is_remembered_any_more_after_many_that_were_of_no_use() {
        let mut template = MemberTemplate::default();
        for id in 0..=MAX_MISSES {
            template.remember(&format!(r#"{{"id":{id},"delta":1}}"#), "delta");
        }
        assert_eq!(template.read::<Value>(&format!(r#"{{"id":{MAX_MISSES},"delta":2}}"#)), None);
    }
}
