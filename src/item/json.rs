//! A JSON value that is stored as text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::value::RawValue;

use crate::item::normalized_json::is_normalized;

/// A JSON value that is stored as compact text and is cheap to clone.
///
/// A raw JSON value preserves the order of its keys, even when it passes through another
/// self-describing format or through a tagged or flattened struct. Opaque provider values can
/// therefore be sent back unchanged.
///
/// ```
/// use turnstream::item::RawJson;
///
/// let json: RawJson = serde_json::from_str(r#"{ "z": 1, "a": [true, null] }"#)?;
/// assert_eq!(json.as_str(), r#"{"z":1,"a":[true,null]}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Arc<str>);

impl RawJson {
    /// Serializes a value to JSON.
    ///
    /// # Errors
    ///
    /// Returns the same errors as `serde_json::to_string`, which fails if a map has keys that are
    /// not strings or if a `Serialize` implementation fails.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|text| Self(text.into()))
    }

    /// Parses a JSON string. Whitespace outside of string values is dropped. Numbers and escapes
    /// are normalized (`1e2` becomes `100.0`), and a number that does not fit into 64 bits becomes
    /// a float.
    ///
    /// # Errors
    ///
    /// Returns an error if `text` is not a single valid JSON value.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        // Servers usually write JSON that needs no normalization.
        if is_normalized(text) { Ok(Self(text.into())) } else { serde_json::from_str(text) }
    }

    /// Returns the value as compact JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Deserializes the value into type `T`.
    ///
    /// # Errors
    ///
    /// Returns an error if the value does not match `T`.
    pub fn deserialize_as<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// Converts the value to a `serde_json::Value` and preserves the order of its keys. Returns
    /// `null` if the value is nested more deeply than `serde_json`'s limit of 128 levels.
    pub fn to_value(&self) -> serde_json::Value {
        self.deserialize_as().unwrap_or_default()
    }
}

impl RawJson {
    /// Returns whether the value's text certainly stays the same if it is parsed and written again,
    /// also as a part of other JSON that adds at most 64 levels.
    pub(crate) fn is_normalized(&self) -> bool {
        is_normalized(&self.0)
    }

    /// Replaces arrays and objects nested more than 64 levels deep with strings that contain their
    /// JSON. The limit leaves room for the nesting levels that an event and each sub-agent add, so
    /// that written events can always be read back.
    pub(crate) fn limit_depth(self) -> Self {
        const MAX_DEPTH: usize = 64;
        if nesting_depth(&self.0) <= MAX_DEPTH {
            return self;
        }
        let mut out = String::new();
        let (mut level, mut from) = (0, 0);
        for (at, bracket) in structural_brackets(&self.0) {
            if matches!(bracket, b'[' | b'{') {
                level += 1;
                if level == MAX_DEPTH + 1 {
                    out.push_str(&self.0[from..at]);
                    from = at;
                }
            } else {
                if level == MAX_DEPTH + 1 {
                    let deep = &self.0[from..=at];
                    out.push_str(&serde_json::Value::from(deep).to_string());
                    from = at + 1;
                }
                level -= 1;
            }
        }
        out.push_str(&self.0[from..]);
        Self(out.into())
    }
}

impl From<&serde_json::Value> for RawJson {
    fn from(value: &serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

impl From<serde_json::Value> for RawJson {
    fn from(value: serde_json::Value) -> Self {
        Self::from(&value)
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        if is_raw_text_written() {
            return RawText(&self.0).serialize(serializer);
        }
        let raw: &RawValue = self.deserialize_as().map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// JSON text that is serialized as `RawValue` is. A `RawValue` cannot be created from a text
/// without parsing it.
struct RawText<'a>(&'a str);

/// The name of the struct, and of its only field, as which `RawValue` is serialized.
const SERDE_JSON_RAW_VALUE: &str = "$serde_json::private::RawValue";

impl Serialize for RawText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut raw = serializer.serialize_struct(SERDE_JSON_RAW_VALUE, 1)?;
        raw.serialize_field(SERDE_JSON_RAW_VALUE, self.0)?;
        raw.end()
    }
}

/// Returns whether `serde_json` still knows [`SERDE_JSON_RAW_VALUE`]. The name is not part of its
/// public interface.
fn is_raw_text_written() -> bool {
    static IS_WRITTEN: OnceLock<bool> = OnceLock::new();
    *IS_WRITTEN.get_or_init(|| {
        serde_json::to_string(&RawText("[0]")).is_ok_and(|written| written == "[0]")
    })
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = Vec::new();
        deserializer.deserialize_any(JsonTranscriber(&mut text))?;
        // Invariant: `serde_json` only writes UTF-8.
        String::from_utf8(text).map(|text| Self(text.into())).map_err(de::Error::custom)
    }
}

/// If any crate enables the `arbitrary_precision` feature of `serde_json`, a number that is not a
/// small integer is deserialized as a map. The map contains only this key, whose value is the text
/// of the number.
const SERDE_JSON_NUMBER_KEY: &str = "$serde_json::private::Number";

/// Parses a number from a string. Returns `None` if the number is out of range for a float.
pub(crate) fn parse_finite_f64(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A key of a map in a self-describing format.
#[derive(PartialEq)]
pub(crate) enum MapKey<'a> {
    /// The only key of a map that represents a number. The value for this key is the text of the
    /// number; see [`parse_finite_f64`].
    Number,
    Field(Cow<'a, str>),
}

impl<'de: 'a, 'a> Deserialize<'de> for MapKey<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for KeyVisitor<'a> {
            type Value = MapKey<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<MapKey<'a>, E> {
                Ok(if key == SERDE_JSON_NUMBER_KEY {
                    MapKey::Number
                } else {
                    MapKey::Field(Cow::Borrowed(key))
                })
            }

            fn visit_str<E>(self, key: &str) -> Result<MapKey<'a>, E> {
                Ok(if key == SERDE_JSON_NUMBER_KEY {
                    MapKey::Number
                } else {
                    MapKey::Field(Cow::Owned(key.into()))
                })
            }
        }
        deserializer.deserialize_str(KeyVisitor(PhantomData))
    }
}

/// Writes every visited value as JSON. Map keys are written in the order in which they are visited.
struct JsonTranscriber<'a>(&'a mut Vec<u8>);

impl JsonTranscriber<'_> {
    fn write_value<T: Serialize + ?Sized, E: de::Error>(self, value: &T) -> Result<(), E> {
        serde_json::to_writer(self.0, value).map_err(E::custom)
    }
}

impl<'de> de::DeserializeSeed<'de> for JsonTranscriber<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonTranscriber<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.write_value(&value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.write_value(&value)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.write_value(&value)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.write_value(&value)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        self.write_value(value)
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.write_value(&())
    }

    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        self.write_value(&())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let mut first = self.0.len();
        while seq.next_element_seed(JsonTranscriber(self.0))?.is_some() {
            first = self.0.len();
            self.0.push(b',');
        }
        // Removes the comma after the last element, if any.
        self.0.truncate(first);
        self.0.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let open = self.0.len();
        self.0.push(b'{');
        let mut first = self.0.len();
        while let Some(key) = map.next_key::<MapKey<'de>>()? {
            match key {
                MapKey::Number => {
                    let number = parse_finite_f64(&map.next_value::<Cow<'de, str>>()?);
                    let number = number.ok_or_else(|| de::Error::custom("number out of range"))?;
                    self.0.truncate(open);
                    return self.write_value(&number);
                }
                MapKey::Field(name) => JsonTranscriber(self.0).write_value(&*name)?,
            }
            self.0.push(b':');
            map.next_value_seed(JsonTranscriber(self.0))?;
            first = self.0.len();
            self.0.push(b',');
        }
        self.0.truncate(first);
        self.0.push(b'}');
        Ok(())
    }
}

/// Returns the maximum nesting depth of arrays and objects in a JSON string.
pub(crate) fn nesting_depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for (_, bracket) in structural_brackets(json) {
        match bracket {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            _ => depth = depth.saturating_sub(1),
        }
    }
    deepest
}

/// Iterates over the brackets of arrays and objects in a JSON string, with their positions.
fn structural_brackets(json: &str) -> impl Iterator<Item = (usize, u8)> {
    unquoted_bytes(json).filter(|(_, byte)| matches!(byte, b'[' | b'{' | b']' | b'}'))
}

/// Iterates over the bytes of a JSON string that are not part of a string value, with their
/// positions.
pub(super) fn unquoted_bytes(json: &str) -> impl Iterator<Item = (usize, u8)> {
    let (mut quoted, mut escaped) = (false, false);
    json.bytes().enumerate().filter(move |(_, byte)| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ => return !quoted,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expected: &str) {
        assert_eq!(RawJson::parse(input).unwrap().as_str(), expected);
    }

    #[test]
    fn text_is_written_as_it_is_without_being_parsed() {
        assert!(is_raw_text_written(), "`serde_json` has renamed the struct of a raw value");
        let json = RawJson(" not JSON ".into());
        assert_eq!(serde_json::to_string(&[json]).unwrap(), "[ not JSON ]");
    }

    #[test]
    fn white_space_is_removed_and_key_order_is_kept() {
        check(" { \"b\" : [ 1 , -2 , 1.5 ] , \"a\" : { } } ", r#"{"b":[1,-2,1.5],"a":{}}"#);
        check("[ ]", "[]");
        check(r#""a\nb""#, r#""a\nb""#);
        check("null", "null");
    }

    #[test]
    fn the_order_of_keys_survives_a_tagged_enum() {
        #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(tag = "type")]
        enum Tagged {
            Keep { value: RawJson },
        }
        let text = r#"{"type":"Keep","value":{"z":{"b":1,"a":2},"c":null}}"#;
        let read: Tagged = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn a_json_text_round_trips_through_a_value() {
        let json = RawJson::parse(r#"{"a":[1,{"b":false}]}"#).unwrap();
        let value = serde_json::to_value(&json).unwrap();
        assert_eq!(RawJson::deserialize(value).unwrap(), json);
    }

    #[test]
    fn too_deeply_nested_values_become_strings() {
        let nested = |levels| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        let json = |text: String| RawJson(text.into());
        assert_eq!(json(nested(64)).limit_depth().as_str(), nested(64));
        let text = format!(r#"{{"a":"[{{","b":{},"c":[{}]}}"#, nested(64), nested(70));
        let flat = json(text).limit_depth();
        let value: serde_json::Value = flat.deserialize_as().unwrap();
        let inside = |mut value: &serde_json::Value| {
            while let Some(inner) = value.get(0) {
                value = inner;
            }
            value.clone()
        };
        assert_eq!(inside(&value["b"]), serde_json::json!("[1]"));
        assert_eq!(inside(&value["c"]), serde_json::json!(nested(8)));
        assert_eq!((&value["a"], nesting_depth(flat.as_str())), (&serde_json::json!("[{"), 64));
    }

    #[test]
    fn invalid_json_is_rejected() {
        assert!(RawJson::parse("{\"a\":").is_err());
        assert!(RawJson::parse("1 2").is_err());
    }
}
