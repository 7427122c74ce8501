//! Lenient deserialization of wire data. Unknown or malformed values are treated as absent and
//! never cause the turn to fail.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::Error;
use crate::item::{RawJson, from_bounded_json, json};
use crate::provider::codec::failure::protocol_error;

/// Deserializes a frame. Valid JSON that a strict deserializer would reject is repaired first. The
/// repairs cover duplicate keys (the last value is kept), unpaired surrogates, and numbers that
/// overflow `f64`. A value that is not an object is treated as an empty object.
pub(in crate::provider) fn read_lenient<'a, T: Deserialize<'a>>(
    data: &'a str,
    scratch: &'a mut String,
) -> Result<T, serde_json::Error> {
    match serde_json::from_str(data) {
        Ok(read) => Ok(read),
        Err(error) => {
            *scratch = repair_json(data).ok_or(error)?;
            serde_json::from_str(scratch)
        }
    }
}

/// Like [`read_lenient`], but does not repair data that contains `word`. The word indicates that
/// the data may contain a tool call, whose arguments could be changed by a repair.
pub(in crate::provider) fn read_lenient_unless_contains<'a, T: Deserialize<'a>>(
    word: &str,
    data: &'a str,
    scratch: &'a mut String,
) -> Result<T, serde_json::Error> {
    match serde_json::from_str(data) {
        Err(error) if data.contains(word) => Err(error),
        Err(_) => read_lenient(data, scratch),
        read => read,
    }
}

/// Deserializes an object. An array is rejected, because serde would interpret its elements as the
/// fields of the struct, in order.
pub(in crate::provider) fn read_object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    let object = Some(raw.get()).filter(|json| json.starts_with('{'));
    object.and_then(|json| serde_json::from_str(json).ok())
}

/// Deserializes a frame. The error message refers to the frame as `what`.
///
/// # Errors
///
/// Returns a [`Protocol`](crate::ErrorKind::Protocol) error if the data is not JSON.
// Without inlining, the result would be moved one additional time for each token.
#[inline]
pub(in crate::provider) fn read_frame<'a, T: Deserialize<'a>>(
    what: &str,
    data: &'a str,
    scratch: &'a mut String,
) -> Result<T, Error> {
    read_lenient(data, scratch)
        .map_err(|error| protocol_error(format!("{what} is not JSON: {error}")).with_source(error))
}

/// Repairs JSON that a strict deserializer rejects. Returns `None` if `data` is not valid JSON or
/// has too many values.
#[cold]
pub(in crate::provider) fn repair_json(data: &str) -> Option<String> {
    from_bounded_json::<IgnoredAny>(data).ok()?;
    let mut out = String::with_capacity(data.len());
    let mut rest = data.trim();
    let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        let mut len = c.len_utf8();
        match c {
            '"' => quoted = !quoted,
            '\\' => {
                len = if rest.starts_with("\\u") { 6 } else { 2 };
                match unit(rest) {
                    Some(0xd800..=0xdbff) if matches!(unit(&rest[6..]), Some(0xdc00..=0xdfff)) => {
                        len = 12;
                    }
                    Some(0xd800..=0xdfff) => {
                        out.push_str("\\ufffd");
                        rest = &rest[6..];
                        continue;
                    }
                    _ => {}
                }
            }
            '-' | '0'..='9' if !quoted => {
                let is_part = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
                len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                if rest[..len].parse::<f64>().is_ok_and(f64::is_infinite) {
                    out.push_str("null");
                    rest = &rest[len..];
                    continue;
                }
            }
            _ => {}
        }
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    // If several fields have the same key, a `Value` keeps the last one.
    match serde_json::from_str::<serde_json::Value>(&out) {
        Ok(value @ serde_json::Value::Object(_)) => Some(value.to_string()),
        Ok(serde_json::Value::String(text)) => Some(serde_json::Value::from(text).to_string()),
        Ok(_) => Some("{}".to_owned()),
        Err(_) => Some(out),
    }
}

/// Returns the value of a field, or `None` if it is absent or `null`.
pub(in crate::provider) fn non_null(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

/// Returns the content of a JSON string, or `None` for any other value.
pub(in crate::provider) fn deserialize_string(raw: &RawValue) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<LenientStr<'_>>(raw.get()) {
        Ok(text) => text.0,
        Err(_) => serde_json::from_str(&repair_json(raw.get())?).ok().map(Cow::Owned),
    }
}

/// Returns the elements of an array, as raw JSON.
pub(in crate::provider) fn array_elements(raw: Option<&RawValue>) -> Vec<&RawValue> {
    let elements = raw.map(|raw| serde_json::from_str(raw.get()));
    elements.and_then(Result::ok).unwrap_or_default()
}

/// Returns the complete JSON value, repaired if necessary.
pub(in crate::provider) fn deserialize_json(raw: &RawValue) -> Option<RawJson> {
    RawJson::parse(raw.get())
        .or_else(|error| RawJson::parse(&repair_json(raw.get()).ok_or(error)?))
        .ok()
}

/// A string, borrowed if it contains no escapes. A JSON value that is not a string becomes `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::provider) struct LenientStr<'a>(pub(in crate::provider) Option<Cow<'a, str>>);

impl LenientStr<'_> {
    pub(in crate::provider) fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Returns the string, unless it is empty.
    pub(in crate::provider) fn non_empty(&self) -> Option<&str> {
        self.get().filter(|text| !text.is_empty())
    }

    pub(in crate::provider) fn or_empty(&self) -> &str {
        self.get().unwrap_or_default()
    }
}

/// A non-negative number. Any other JSON value becomes `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::provider) struct LenientNumber(pub(in crate::provider) Option<u64>);

impl LenientNumber {
    pub(in crate::provider) fn or_zero(self) -> u64 {
        self.0.unwrap_or_default()
    }

    /// Sets `count` to the number, if present.
    pub(in crate::provider) fn update_count(self, count: &mut u64) {
        *count = self.0.unwrap_or(*count);
    }
}

/// An object. A JSON value that is not an object becomes `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::provider) struct Lenient<T>(pub(in crate::provider) Option<T>);

/// An object that is rarely present. The object is boxed, because the structs that contain it are
/// moved for each token and should stay small.
pub(in crate::provider) type RareObject<T> = Lenient<Box<T>>;

/// An object, or a marker for a value that is not an object. A value that is not an object may
/// contain part of a tool call.
#[derive(Debug, Default)]
pub(in crate::provider) struct MaybeObject<T> {
    pub(in crate::provider) value: Option<T>,
    pub(in crate::provider) malformed: bool,
}

/// The elements of an array. A JSON value that is not an array becomes an empty list.
#[derive(Clone, Debug, Default)]
pub(in crate::provider) struct LenientList<T>(pub(in crate::provider) Vec<T>);

/// The elements of an array, as raw JSON. A JSON value that is not an array becomes an empty list.
#[derive(Debug, Default)]
pub(in crate::provider) struct RawList<'a>(pub(in crate::provider) Vec<&'a RawValue>);

/// A type that can be deserialized from a JSON value of any type. Each method handles one JSON type
/// and by default returns the result of [`from_malformed`](Self::from_malformed). `null` becomes
/// the default value.
pub(in crate::provider) trait FromAny<'de>: Default {
    /// Returns the result for a value of the wrong type.
    fn from_malformed() -> Self {
        Self::default()
    }

    fn from_text(_text: Cow<'de, str>) -> Self {
        Self::from_malformed()
    }

    fn from_u64(_number: u64) -> Self {
        Self::from_malformed()
    }

    fn from_f64(_number: f64) -> Self {
        Self::from_malformed()
    }

    fn from_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::from_malformed())
    }

    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::from_malformed())
    }
}

/// Deserializes a value of any JSON type.
pub(in crate::provider) fn deserialize_any<'de, T: FromAny<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct AnyVisitor<T>(PhantomData<T>);
    impl<'de, T: FromAny<'de>> Visitor<'de> for AnyVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("anything")
        }
        fn visit_borrowed_str<E>(self, text: &'de str) -> Result<T, E> {
            Ok(T::from_text(Cow::Borrowed(text)))
        }
        fn visit_str<E>(self, text: &str) -> Result<T, E> {
            Ok(T::from_text(Cow::Owned(text.to_owned())))
        }
        fn visit_u64<E>(self, number: u64) -> Result<T, E> {
            Ok(T::from_u64(number))
        }
        fn visit_f64<E>(self, number: f64) -> Result<T, E> {
            Ok(T::from_f64(number))
        }
        fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<T, A::Error> {
            T::from_array(array)
        }
        fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<T, A::Error> {
            T::from_object(object)
        }
        fn visit_bool<E>(self, _: bool) -> Result<T, E> {
            Ok(T::from_malformed())
        }
        /// Handles negative integers. All other integers are passed to the visitor as `u64`.
        fn visit_i64<E>(self, _: i64) -> Result<T, E> {
            Ok(T::from_malformed())
        }
        fn visit_unit<E>(self) -> Result<T, E> {
            Ok(T::default())
        }
    }
    deserializer.deserialize_any(AnyVisitor(PhantomData))
}

/// Implements `Deserialize` for the given types, which may be generic, by calling
/// [`deserialize_any`].
macro_rules! impl_lenient_deserialize {
    ($([$($generics:tt)*] $type:ty;)*) => {$(
        impl<$($generics)*> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::provider::codec::lenient::deserialize_any(from)
            }
        }
    )*};
}
pub(in crate::provider) use impl_lenient_deserialize;

impl_lenient_deserialize! {
    ['de: 'a, 'a] LenientStr<'a>;
    ['de] LenientNumber;
    ['de, T: Deserialize<'de> + Default] Lenient<T>;
    ['de, T: Deserialize<'de> + Default] MaybeObject<T>;
    ['de, T: Deserialize<'de> + Default] LenientList<T>;
    ['de: 'a, 'a] RawList<'a>;
}

impl<'de: 'a, 'a> FromAny<'de> for LenientStr<'a> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self(Some(text))
    }
}

impl<'de> FromAny<'de> for LenientNumber {
    fn from_u64(number: u64) -> Self {
        Self(Some(number))
    }

    /// Converts a float, because some servers send counts as floats.
    fn from_f64(number: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = number as u64;
        Self((number >= 0.0).then_some(whole))
    }

    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        let mut found = Self::default();
        while let Some(key) = object.next_key()? {
            match key {
                json::MapKey::Number => {
                    let number = json::parse_finite_f64(&object.next_value::<Cow<'de, str>>()?);
                    found = number.map_or(found, Self::from_f64);
                }
                json::MapKey::Field(_) => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

impl<'de, T: Deserialize<'de> + Default> FromAny<'de> for Lenient<T> {
    fn from_object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(|value| Self(Some(value)))
    }
}

impl<'de, T: Deserialize<'de> + Default> FromAny<'de> for MaybeObject<T> {
    fn from_malformed() -> Self {
        Self { value: None, malformed: true }
    }

    fn from_object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        let value = T::deserialize(MapAccessDeserializer::new(object))?;
        Ok(Self { value: Some(value), malformed: false })
    }
}

impl<'de, T: Deserialize<'de> + Default> FromAny<'de> for LenientList<T> {
    fn from_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        let mut all = Vec::new();
        // Elements that are not objects are skipped.
        while let Some(Lenient(element)) = array.next_element::<Lenient<T>>()? {
            all.extend(element);
        }
        Ok(Self(all))
    }
}

impl<'de: 'a, 'a> FromAny<'de> for RawList<'a> {
    fn from_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = array.next_element::<&RawValue>()? {
            all.push(element);
        }
        Ok(Self(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug, Default)]
    #[serde(default)]
    struct Wire<'a> {
        #[serde(borrow)]
        s: LenientStr<'a>,
        n: LenientNumber,
        #[serde(borrow)]
        inner: Lenient<Inner<'a>>,
        #[serde(borrow)]
        list: LenientList<Inner<'a>>,
    }

    #[derive(serde::Deserialize, Debug, Default)]
    #[serde(default)]
    struct Inner<'a> {
        #[serde(borrow)]
        x: LenientStr<'a>,
    }

    #[test]
    fn matching_values_are_read_and_borrowed() {
        let wire: Wire<'_> = serde_json::from_str(
            r#"{"s":"a","n":3,"inner":{"x":"b"},"list":[{"x":"c\n"}],"more":[1]}"#,
        )
        .unwrap();
        assert!(matches!(wire.s.0, Some(Cow::Borrowed("a"))));
        assert_eq!(wire.n.0, Some(3));
        assert_eq!(wire.inner.0.unwrap().x.get(), Some("b"));
        assert_eq!(wire.list.0[0].x.get(), Some("c\n"));
    }

    #[test]
    fn a_count_may_be_a_float() {
        let count = |json: &str| serde_json::from_str::<LenientNumber>(json).unwrap().0;
        assert_eq!(["3.0", "1e3", "-2.0", "0"].map(count), [Some(3), Some(1000), None, Some(0)]);
        assert_eq!(count(r#"{"a":1,"b":{}}"#), None);
    }

    #[test]
    fn the_elements_of_an_array_are_read_as_raw_json() {
        let elements = |json| serde_json::from_str::<RawList<'_>>(json).unwrap().0.len();
        assert_eq!(
            [r#"[{"a":[1]}, "b",null]"#, "[]", "{\"a\":1}", "null"].map(elements),
            [3, 0, 0, 0]
        );
    }

    #[test]
    fn mismatching_values_are_read_as_none() {
        for odd in ["null", "true", "-1", "1.5", "\"x\"", "[1,[2]]", "{\"y\":{\"z\":[]}}"] {
            let json = format!(r#"{{"s":{odd},"n":{odd},"inner":{odd},"list":{odd}}}"#);
            let wire: Wire<'_> = serde_json::from_str(&json).unwrap();
            assert!(wire.s.get().is_none() || odd == "\"x\"", "{odd}");
            assert!(wire.list.0.is_empty(), "{odd}");
        }
    }
}
