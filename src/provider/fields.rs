//! Objects whose fields keep their order: what is read and sent back is to look the same.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};
use crate::item::Json;
use crate::provider::lenient::elements;

/// The fields of an object in their order, their values as they are written.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// Reads an object; anything else has no fields.
    pub(super) fn parse(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// The objects of an array.
    pub(super) fn list(array: Option<&RawValue>) -> Vec<Self> {
        elements(array).into_iter().filter_map(|element| Self::parse(element.get())).collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Replaces a field, or adds it at the end.
    pub(super) fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(field, _)| field == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// The same without some fields.
    pub(super) fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(|(name, _)| !names.contains(&name.as_str()));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The fields in their order.
    pub(super) fn into_iter(self) -> impl Iterator<Item = (String, Box<RawValue>)> {
        self.0.into_iter()
    }

    pub(super) fn into_json(self) -> Option<Json> {
        Json::parse(&serde_json::to_string(&self).ok()?).ok()
    }

    /// Merges `extra`: objects field by field, anything else replaces what stands there.
    fn merge(&mut self, extra: &Map<String, Value>) -> Result<(), serde_json::Error> {
        for (name, value) in extra {
            let old = self.get(name).and_then(|old| Self::parse(old.get()));
            let merged = match (old, value) {
                (Some(mut old), Value::Object(extra)) => {
                    old.merge(extra)?;
                    serde_json::value::to_raw_value(&old)?
                }
                (_, value) => serde_json::value::to_raw_value(value)?,
            };
            self.set(name, merged);
        }
        Ok(())
    }
}

/// Writes a body with what a request has beside what is modelled; see
/// [`Options::extra`](crate::request::Options::extra).
///
/// The body's last field, `array`, is an empty array; `fill` appends its elements.
pub(super) fn to_bytes_around(
    body: &impl Serialize,
    array: &str,
    fill: impl FnOnce(&mut Vec<u8>),
    extra: &Map<String, Value>,
) -> Result<Vec<u8>, Error> {
    let mut out = serde_json::to_vec(body).map_err(not_json)?;
    if extra.is_empty() {
        // Law: the array is empty and stands last.
        out.truncate(out.len().saturating_sub("]}".len()));
        fill(&mut out);
        out.extend_from_slice(b"]}");
        return Ok(out);
    }
    let mut fields: Fields = serde_json::from_slice(&out).map_err(not_json)?;
    fields.merge(extra).map_err(not_json)?;
    let (mut fill, mut open) = (Some(fill), b'{');
    out.clear();
    for (name, value) in &fields.0 {
        out.push(std::mem::replace(&mut open, b','));
        serde_json::to_writer(&mut out, name).map_err(not_json)?;
        out.push(b':');
        // What replaces the array is in `extra`.
        match fill.take_if(|_| name == array && !extra.contains_key(array)) {
            Some(fill) => {
                out.push(b'[');
                fill(&mut out);
                out.push(b']');
            }
            None => out.extend_from_slice(value.get().as_bytes()),
        }
    }
    out.push(b'}');
    Ok(out)
}

/// The error for what cannot be written as JSON.
pub(super) fn not_json(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::InvalidRequest, "the request is not JSON").with_source(error)
}

/// The error for an option that a wire cannot express.
pub(super) fn unsupported(wire: &str, option: &str) -> Error {
    let message = format!("the {wire} wire cannot express `{option}`");
    Error::new(ErrorKind::Unsupported, message).with_parameter(option)
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(V)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(body: &str, extra: Value, expected: &str) {
        let body: Fields = serde_json::from_str(body).unwrap();
        let Value::Object(extra) = extra else { unreachable!("it is written as an object") };
        let fill = |out: &mut Vec<u8>| out.extend_from_slice(b"1,2");
        let bytes = to_bytes_around(&body, "items", fill, &extra).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn extra_fields_are_merged_and_the_order_stays() {
        let body = r#"{"z":1,"m":{"y":[1e2],"x":2},"a":3,"items":[]}"#;
        let plain = r#"{"z":1,"m":{"y":[1e2],"x":2},"a":3,"items":[1,2]}"#;
        check(body, json!({}), plain);
        let extra = json!({ "m": { "x": 9, "w": {} }, "a": null, "new": [1] });
        let merged = r#"{"z":1,"m":{"y":[1e2],"x":9,"w":{}},"a":null,"items":[1,2],"new":[1]}"#;
        check(body, extra, merged);
        let replaced = r#"{"z":1,"m":{"y":[1e2],"x":2},"a":3,"items":"none"}"#;
        check(body, json!({ "items": "none" }), replaced);
    }
}
