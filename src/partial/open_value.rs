//! Deserializes a value that has not ended, without a copy of its tree.

use std::slice;

use serde::Deserializer;
use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value, map};

use crate::partial::parser::{Container, Members};

/// The part of a value that is shown: open containers, the outermost first, and perhaps the string
/// in the innermost one. At least one of both exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenValue<'a> {
    pub(super) containers: &'a [Container],
    pub(super) string: Option<&'a str>,
}

impl<'a> OpenValue<'a> {
    /// Returns the innermost container's last member, if it is shown and has not ended.
    fn open_member(self) -> Option<OpenValue<'a>> {
        let containers = self.containers.get(1..).unwrap_or_default();
        let is_shown = !containers.is_empty() || self.string.is_some();
        is_shown.then_some(OpenValue { containers, ..self })
    }
}

impl<'de> Deserializer<'de> for OpenValue<'de> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match (self.containers.first().map(|it| &it.members), self.string) {
            (Some(Members::List(elements)), _) => {
                visitor.visit_seq(Elements { ended: elements.iter(), open: self.open_member() })
            }
            (Some(Members::Object { fields, name }), _) => {
                visitor.visit_map(Fields::new(fields, name.as_deref(), self.open_member()))
            }
            (None, Some(string)) => visitor.visit_borrowed_str(string),
            (None, None) => visitor.visit_unit(),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match (self.containers.first().map(|it| &it.members), self.string) {
            (None, Some(string)) => {
                StrDeserializer::new(string).deserialize_enum(name, variants, visitor)
            }
            // The name of the object's only field is the variant.
            (Some(Members::Object { fields, name: open_name }), _) => {
                let fields = Fields::new(fields, open_name.as_deref(), self.open_member());
                MapAccessDeserializer::new(fields).deserialize_enum(name, variants, visitor)
            }
            (Some(Members::List(_)) | None, _) => {
                Err(Self::Error::custom("a list is not a variant"))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The elements of a list: those that have ended, and then the one that has not.
struct Elements<'a> {
    ended: slice::Iter<'a, Value>,
    open: Option<OpenValue<'a>>,
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = serde_json::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Self::Error> {
        match (self.ended.next(), self.open) {
            (Some(element), _) => seed.deserialize(element).map(Some),
            (None, Some(open)) => {
                self.open = None;
                seed.deserialize(open).map(Some)
            }
            (None, None) => Ok(None),
        }
    }
}

/// The fields of an object: those that have ended, and then the one that has not.
struct Fields<'a> {
    ended: map::Iter<'a>,
    /// The name of the field that has not ended. An earlier field of this name is left out.
    open_name: Option<&'a str>,
    open: Option<OpenValue<'a>>,
    /// The value of the field whose name was read.
    value: Option<FieldValue<'a>>,
}

#[derive(Clone, Copy)]
enum FieldValue<'a> {
    Ended(&'a Value),
    Open(OpenValue<'a>),
}

impl<'a> Fields<'a> {
    fn new(
        ended: &'a Map<String, Value>,
        open_name: Option<&'a str>,
        open: Option<OpenValue<'a>>,
    ) -> Self {
        Self { ended: ended.iter(), open_name, open, value: None }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Self::Error> {
        let open_name = self.open_name;
        let ended = self.ended.find(|(name, _)| open_name != Some(name.as_str()));
        let (name, value) = match (ended, open_name, self.open) {
            (Some((name, value)), _, _) => (name.as_str(), FieldValue::Ended(value)),
            (None, Some(name), Some(open)) => {
                self.open = None;
                (name, FieldValue::Open(open))
            }
            (None, _, _) => return Ok(None),
        };
        self.value = Some(value);
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, Self::Error> {
        match self.value.take() {
            Some(FieldValue::Ended(value)) => seed.deserialize(value),
            Some(FieldValue::Open(open)) => seed.deserialize(open),
            None => Err(Self::Error::custom("a value was read before its name")),
        }
    }
}
