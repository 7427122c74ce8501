//! The fields of a JSON object as text.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::item::from_bounded_json;

/// The fields of a JSON object in their original order. Each value is JSON text, exactly as it was
/// written. A name may occur more than once.
pub(crate) struct JsonFields<'a>(pub(crate) Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> JsonFields<'a> {
    /// Parses an object, or returns `None` if `json` is not an object or has too many values.
    pub(crate) fn parse(json: &'a str) -> Option<Self> {
        from_bounded_json(json).ok()
    }

    /// Returns the object as JSON, without white space between the fields.
    pub(crate) fn to_json(&self) -> String {
        let fields: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| format!("{}:{value}", serde_json::Value::from(&**name)))
            .collect();
        format!("{{{}}}", fields.join(","))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Vec<(Cow<'de, str>, Cow<'de, str>)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut fields = Vec::new();
                while let Some((FieldName(name), value)) = map.next_entry::<_, &RawValue>()? {
                    fields.push((name, Cow::Borrowed(value.get())));
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(FieldsVisitor).map(Self)
    }
}

/// A field name, which is borrowed if it contains no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns the elements of a JSON array as text, or `None` if `json` is not an array.
pub(super) fn parse_elements(json: &str) -> Option<Vec<&str>> {
    let elements: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    Some(elements.into_iter().map(RawValue::get).collect())
}
