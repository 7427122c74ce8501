//! Writes a request body as a JSON object, field by field, and merges in the extra fields set by
//! the caller.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::chunked_bytes::ChunkedBytes;
use crate::error::{Error, ErrorKind};
use crate::item::RawJson;
use crate::provider::codec::ordered_fields::OrderedFields;
pub(in crate::provider) use crate::request::unsupported_error;

/// Writes a JSON object whose fields appear in the order in which they were set. Each field must be
/// set only once.
#[derive(Debug, Default)]
pub(in crate::provider) struct ObjectWriter {
    /// The serialized fields, each followed by a comma. In a request body, they follow a brace.
    fields: Vec<u8>,
    /// The offset of each field's name in `fields`, and the offset of the field's value.
    offsets: Vec<(usize, usize)>,
    /// The first error that occurred while a value was being serialized.
    error: Option<serde_json::Error>,
}

impl ObjectWriter {
    /// Creates a writer for a request body, with enough capacity for the settings of a typical
    /// request.
    pub(in crate::provider) fn for_request() -> Self {
        let mut fields = Vec::with_capacity(1024);
        fields.push(b'{');
        Self { fields, offsets: Vec::with_capacity(16), error: None }
    }

    /// Adds a field to the object. The name is written without escaping.
    pub(in crate::provider) fn set(mut self, name: &str, value: impl Serialize) -> Self {
        self.begin_field(name);
        if let Err(error) = serde_json::to_writer(&mut self.fields, &value) {
            self.error.get_or_insert(error);
        }
        self.fields.push(b',');
        self
    }

    /// Adds a field whose value is already encoded: the concatenation of `json`.
    pub(in crate::provider) fn set_encoded(mut self, name: &str, json: &[&[u8]]) -> Self {
        self.begin_field(name);
        for piece in json {
            self.fields.extend_from_slice(piece);
        }
        self.fields.push(b',');
        self
    }

    /// Adds a field to the object if `value` is not `None`.
    pub(in crate::provider) fn set_some(self, name: &str, value: Option<impl Serialize>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// Adds an array field to the object, unless `list` is empty.
    pub(in crate::provider) fn set_list(self, name: &str, list: &[impl Serialize]) -> Self {
        self.set_some(name, (!list.is_empty()).then_some(list))
    }

    /// Adds a field whose value is an object, unless `object` is empty.
    pub(in crate::provider) fn set_object(mut self, name: &str, object: Self) -> Self {
        if object.is_empty() {
            return self;
        }
        self.begin_field(name);
        self.fields.push(b'{');
        self.fields.extend_from_slice(&object.fields);
        self.error = self.error.or(object.error);
        self.end_field(b"},");
        self
    }

    /// Appends the fields of another object to this object.
    pub(in crate::provider) fn append(mut self, other: Self) -> Self {
        let before = self.fields.len();
        let moved = |(name, value): (usize, usize)| (before + name, before + value);
        self.offsets.extend(other.offsets.into_iter().map(moved));
        self.fields.extend_from_slice(&other.fields);
        self.error = self.error.or(other.error);
        self
    }

    pub(in crate::provider) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the object as JSON, or `None` if a value cannot be serialized.
    pub(in crate::provider) fn into_json(mut self) -> Option<RawJson> {
        if self.error.is_some() {
            return None;
        }
        self.fields.insert(0, b'{');
        self.end_field(b"}");
        RawJson::parse(std::str::from_utf8(&self.fields).ok()?).ok()
    }

    /// Returns the object as JSON, with an additional last field: an array to which `fill` appends
    /// the elements. The fields in [`Options::extra`](crate::request::Options::extra) are merged
    /// into the object.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if a value cannot be
    /// serialized as JSON.
    pub(in crate::provider) fn into_bytes_with_array(
        mut self,
        array: &str,
        fill: impl FnOnce(&mut ChunkedBytes),
        extra: &Map<String, Value>,
    ) -> Result<ChunkedBytes, Error> {
        if let Some(error) = self.error {
            return Err(serialization_error(error));
        }
        if extra.is_empty() {
            if self.fields.first() != Some(&b'{') {
                self.fields.insert(0, b'{');
            }
            self.begin_field(array);
            self.fields.push(b'[');
            let mut out = ChunkedBytes::from(self.fields);
            fill(&mut out);
            out.extend_from_slice(b"]}");
            return Ok(out);
        }
        self.merge_with_array(array, fill, extra).map_err(serialization_error)
    }

    /// Merges `extra` into the object. Only the values of fields that `extra` also contains are
    /// parsed, because the other fields may be large.
    fn merge_with_array(
        self,
        array: &str,
        fill: impl FnOnce(&mut ChunkedBytes),
        extra: &Map<String, Value>,
    ) -> Result<ChunkedBytes, serde_json::Error> {
        let mut out = Vec::with_capacity(self.fields.len() + 1024);
        out.push(b'{');
        let mut merged = Vec::with_capacity(extra.len());
        for (name, value) in self.iter() {
            begin_field(&mut out, name);
            match std::str::from_utf8(name).ok().and_then(|name| extra.get_key_value(name)) {
                Some((name, extra)) => {
                    merged.push(name);
                    write_merged_field(&mut out, name, value, extra)?;
                }
                None => out.extend_from_slice(value),
            }
            out.push(b',');
        }
        begin_field(&mut out, array.as_bytes());
        // If `extra` has a field with the array's name, that field replaces the array.
        let is_replaced = match extra.get_key_value(array) {
            Some((name, value)) => {
                merged.push(name);
                serde_json::to_writer(&mut out, value)?;
                true
            }
            None => false,
        };
        let mut end = Vec::new();
        for (name, value) in extra.iter().filter(|(name, _)| !merged.contains(name)) {
            end.push(b',');
            serde_json::to_writer(&mut end, name)?;
            end.push(b':');
            serde_json::to_writer(&mut end, value)?;
        }
        end.push(b'}');
        let mut out = ChunkedBytes::from(out);
        if !is_replaced {
            out.extend_from_slice(b"[");
            fill(&mut out);
            out.extend_from_slice(b"]");
        }
        out.extend_from_slice(&end);
        Ok(out)
    }

    /// Iterates over the names and the encoded values of the fields.
    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let ends = self.offsets.iter().skip(1).map(|(name, _)| *name).chain([self.fields.len()]);
        // A name is in quotes and followed by a colon, and a value is followed by a comma.
        let field = |((name, value), end): (&(usize, usize), usize)| {
            (&self.fields[*name + 1..*value - 2], &self.fields[*value..end - 1])
        };
        self.offsets.iter().zip(ends).map(field)
    }

    fn begin_field(&mut self, name: &str) {
        let start = self.fields.len();
        begin_field(&mut self.fields, name.as_bytes());
        self.offsets.push((start, self.fields.len()));
    }

    /// Replaces the comma after the last field with `by`.
    fn end_field(&mut self, by: &[u8]) {
        self.fields.pop_if(|last| *last == b',');
        self.fields.extend_from_slice(by);
    }
}

/// Writes a field's name, without escaping, and the colon that follows it.
fn begin_field(out: &mut Vec<u8>, name: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(name);
    out.extend_from_slice(b"\":");
}

/// Serializes a request body and merges the request's extra fields into it; see
/// [`Options::extra`](crate::request::Options::extra).
#[cfg(feature = "http")]
pub(in crate::provider) fn serialize_body(
    body: &impl Serialize,
    extra: &Map<String, Value>,
) -> Result<Vec<u8>, Error> {
    let out = serde_json::to_vec(body).map_err(serialization_error)?;
    if extra.is_empty() {
        return Ok(out);
    }
    let mut fields: OrderedFields<'_> =
        serde_json::from_slice(&out).map_err(serialization_error)?;
    let mut merge = || {
        for (name, extra) in extra {
            let own = fields.get(name).map_or(&b""[..], |own| own.get().as_bytes());
            let mut merged = Vec::new();
            write_merged_field(&mut merged, name, own, extra)?;
            fields.set(name, serde_json::from_slice(&merged)?);
        }
        serde_json::to_vec(&fields)
    };
    merge().map_err(serialization_error)
}

/// Returns a request body that has only the fields in `names`, for an endpoint that rejects others.
#[cfg(feature = "http")]
pub(in crate::provider) fn keep_fields(body: &[u8], names: &[&str]) -> Result<Vec<u8>, Error> {
    let mut fields: OrderedFields<'_> =
        serde_json::from_slice(body).map_err(serialization_error)?;
    fields.retain(|name| names.contains(&name));
    serde_json::to_vec(&fields).map_err(serialization_error)
}

/// The fields of [`Options::extra`](crate::request::Options::extra) whose elements are appended to
/// the request's own list, because replacing the list would remove what the request needs: its
/// tools, its reasoning, and the features of its host.
const APPENDED_FIELDS: [&str; 3] = ["tools", "include", "anthropic_beta"];

/// Writes the value of a field of the body after `extra` has been merged into it.
fn write_merged_field(
    out: &mut Vec<u8>,
    name: &str,
    own: &[u8],
    extra: &Value,
) -> Result<(), serde_json::Error> {
    let own_list = own.strip_prefix(b"[").and_then(|own| own.strip_suffix(b"]"));
    let (Value::Array(more), Some(own_list), true) =
        (extra, own_list, APPENDED_FIELDS.contains(&name))
    else {
        return OrderedFields::write_merged(out, own, extra);
    };
    let known: Vec<Value> = match more.iter().any(Value::is_string) {
        true => serde_json::from_slice(own)?,
        false => Vec::new(),
    };
    out.push(b'[');
    out.extend_from_slice(own_list);
    for value in more.iter().filter(|value| !known.contains(value)) {
        if out.last() != Some(&b'[') {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, value)?;
    }
    out.push(b']');
    Ok(())
}

/// Returns whether extra fields contain tools.
pub(in crate::provider) fn has_extra_tools(extra: &Map<String, Value>) -> bool {
    extra.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty())
}

/// Returns extra fields without the tools, for a request that must not offer tools.
pub(in crate::provider) fn without_tools(extra: &Map<String, Value>) -> Map<String, Value> {
    let others = extra.iter().filter(|(name, _)| *name != "tools");
    others.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Creates the error for a value that cannot be serialized as JSON.
pub(in crate::provider) fn serialization_error(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::InvalidRequest, "the request is not JSON").with_source(error)
}

/// Checks that none of the given options are set. Each option is a pair `(name, is_set)`.
///
/// # Errors
///
/// Returns an [`Unsupported`](ErrorKind::Unsupported) error for the first option that is set. The
/// error's parameter is the name of that option.
pub(in crate::provider) fn ensure_options_unset(
    wire: &str,
    options: &[(&str, bool)],
) -> Result<(), Error> {
    match options.iter().find(|(_, is_set)| *is_set) {
        Some((option, _)) => Err(unsupported_error(wire, option)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(body: ObjectWriter, extra: Value, expected: &str) {
        let Value::Object(extra) = extra else { unreachable!("it is written as an object") };
        let fill = |out: &mut ChunkedBytes| out.extend_from_slice(b"1,2");
        let bytes = body.into_bytes_with_array("items", fill, &extra).unwrap();
        assert_eq!(String::from_utf8(bytes.into_vec()).unwrap(), expected);
    }

    #[test]
    fn extra_fields_are_merged_and_the_order_stays() {
        let body = || {
            let m = ObjectWriter::default().set("y", [100.0]).set("x", 2);
            ObjectWriter::default().set("z", 1).set_object("m", m).set("a", 3)
        };
        let plain = r#"{"z":1,"m":{"y":[100.0],"x":2},"a":3,"items":[1,2]}"#;
        check(body(), json!({}), plain);
        let extra = json!({ "m": { "x": 9, "w": {} }, "a": null, "new": [1] });
        let merged = r#"{"z":1,"m":{"y":[100.0],"x":9,"w":{}},"a":null,"items":[1,2],"new":[1]}"#;
        check(body(), extra, merged);
        let replaced = r#"{"z":1,"m":{"y":[100.0],"x":2},"a":3,"items":"none"}"#;
        check(body(), json!({ "items": "none" }), replaced);
    }

    #[test]
    fn the_elements_of_some_lists_are_appended() {
        let body = || {
            let inner = ObjectWriter::default().set("tools", [1]);
            ObjectWriter::default()
                .set("tools", ["a"])
                .set("include", ["a", "b"])
                .set("other", [1])
                .set_object("inner", inner)
        };
        let extra = json!({ "tools": [{ "x": 1 }], "include": ["b", "c"], "other": [2],
            "inner": { "tools": [2] } });
        let merged = r#"{"tools":["a",{"x":1}],"include":["a","b","c"],"other":[2],"inner":{"tools":[2]},"items":[1,2]}"#;
        check(body(), extra, merged);
        check(
            body(),
            json!({ "tools": [], "include": null }),
            r#"{"tools":["a"],"include":null,"other":[1],"inner":{"tools":[1]},"items":[1,2]}"#,
        );
        let none = ObjectWriter::default().set("tools", [0; 0]);
        check(none, json!({ "tools": [1] }), r#"{"tools":[1],"items":[1,2]}"#);
    }

    #[test]
    fn fields_without_a_value_are_left_out() {
        let body = ObjectWriter::default().set_some("a", None::<u8>).set_list("b", &[0_u8; 0]);
        let body = body.set_object("c", ObjectWriter::default());
        check(body, json!({}), r#"{"items":[1,2]}"#);
        check(ObjectWriter::default(), json!({ "a": 1 }), r#"{"items":[1,2],"a":1}"#);
    }

    #[test]
    fn a_value_that_is_not_json_is_an_invalid_request() {
        let keys = std::collections::HashMap::from([(vec![1], 1)]);
        let inner = ObjectWriter::default().set("bad", keys);
        let body = ObjectWriter::default().set_object("inner", inner).set("good", 1);
        let error = body.into_bytes_with_array("items", |_| {}, &Map::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
}
