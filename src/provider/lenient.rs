//! Reading what a wire sends without tripping over a field: an unknown or misshapen value is as
//! good as none, and never costs the turn.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Reads a frame. JSON that a strict reader trips over, though it is JSON, is repaired first: a key
/// that stands there twice (the last one counts), half of a surrogate pair, a number beyond all
/// measure. What is no object says nothing.
pub(super) fn read<'a, T: Deserialize<'a>>(
    data: &'a str,
    room: &'a mut String,
) -> Result<T, serde_json::Error> {
    match serde_json::from_str(data) {
        Ok(read) => Ok(read),
        Err(error) => {
            *room = repaired(data).ok_or(error)?;
            serde_json::from_str(room)
        }
    }
}

/// JSON text with what a strict reader refuses made harmless, or `None` if it is no JSON at all.
#[cold]
pub(super) fn repaired(data: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(data).ok()?;
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
    // A `Value` keeps the last of two equal keys.
    match serde_json::from_str::<serde_json::Value>(&out) {
        Ok(value @ serde_json::Value::Object(_)) => Some(value.to_string()),
        Ok(serde_json::Value::String(text)) => Some(serde_json::Value::from(text).to_string()),
        Ok(_) => Some("{}".to_owned()),
        Err(_) => Some(out),
    }
}

/// A string, borrowed where it has no escapes; anything else is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Str<'a>(pub(super) Option<Cow<'a, str>>);

impl Str<'_> {
    pub(super) fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }

    pub(super) fn or_empty(&self) -> &str {
        self.get().unwrap_or_default()
    }
}

/// A number that counts something; anything else is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Num(pub(super) Option<u64>);

/// An object; anything else is none.
#[derive(Clone, Debug)]
pub(super) struct Lax<T>(pub(super) Option<T>);

/// An object that is seldom there, so that its absence takes little room: the structs that hold
/// it are moved about for every token.
pub(super) type Seldom<T> = Lax<Box<T>>;

/// The elements of an array; anything else is empty.
#[derive(Clone, Debug)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for Lax<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Writes the visitor methods whose value is passed over.
macro_rules! pass_over {
    ($($method:ident: $type:ty),* $(,)?) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("anything")
        }
        $(fn $method<E>(self, _: $type) -> Result<Self::Value, E> { Ok(Self::Value::default()) })*
        fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
        fn visit_none<E>(self) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
}

macro_rules! pass_over_map {
    () => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
}

macro_rules! pass_over_seq {
    () => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for V<'a> {
            type Value = Str<'a>;

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Str<'a>, E> {
                Ok(Str(Some(Cow::Borrowed(text))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Str<'a>, E> {
                Ok(Str(Some(Cow::Owned(text.to_owned()))))
            }
            pass_over!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
            pass_over_map!();
            pass_over_seq!();
        }
        deserializer.deserialize_any(V(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Num {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Num;

            fn visit_u64<E>(self, number: u64) -> Result<Num, E> {
                Ok(Num(Some(number)))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Num, E> {
                // Some servers count in floats.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let whole = number as u64;
                Ok(Num((number >= 0.0).then_some(whole)))
            }
            pass_over!(visit_bool: bool, visit_i64: i64, visit_str: &str);
            pass_over_map!();
            pass_over_seq!();
        }
        deserializer.deserialize_any(V)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lax<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = Lax<T>;

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Lax<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|value| Lax(Some(value)))
            }
            pass_over!(
                visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str,
            );
            pass_over_seq!();
        }
        deserializer.deserialize_any(V(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = List<T>;

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut all = Vec::new();
                // An element that is no object is passed over.
                while let Some(Lax(element)) = seq.next_element::<Lax<T>>()? {
                    all.extend(element);
                }
                Ok(List(all))
            }
            pass_over!(
                visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str,
            );
            pass_over_map!();
        }
        deserializer.deserialize_any(V(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug, Default)]
    #[serde(default)]
    struct Wire<'a> {
        #[serde(borrow)]
        s: Str<'a>,
        n: Num,
        #[serde(borrow)]
        inner: Lax<Inner<'a>>,
        #[serde(borrow)]
        list: List<Inner<'a>>,
    }

    #[derive(serde::Deserialize, Debug, Default)]
    #[serde(default)]
    struct Inner<'a> {
        #[serde(borrow)]
        x: Str<'a>,
    }

    #[test]
    fn what_fits_is_read_and_borrowed() {
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
    fn what_does_not_fit_is_as_good_as_none() {
        for odd in ["null", "true", "-1", "1.5", "\"x\"", "[1,[2]]", "{\"y\":{\"z\":[]}}"] {
            let json = format!(r#"{{"s":{odd},"n":{odd},"inner":{odd},"list":{odd}}}"#);
            let wire: Wire<'_> = serde_json::from_str(&json).unwrap();
            assert!(wire.s.get().is_none() || odd == "\"x\"", "{odd}");
            assert!(wire.list.0.is_empty(), "{odd}");
        }
    }
}
