//! An object that must be told from what is none: a piece of a call may stand in it.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// An object, or the fact that something stands there that is none.
pub(super) struct Shaped<T> {
    pub(super) is: Option<T>,
    pub(super) misshapen: bool,
}

impl<T> Default for Shaped<T> {
    fn default() -> Self {
        Self { is: None, misshapen: false }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shaped<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = Shaped<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Shaped<T>, A::Error> {
                let is = Some(T::deserialize(MapAccessDeserializer::new(map))?);
                Ok(Shaped { is, misshapen: false })
            }
            fn visit_unit<E>(self) -> Result<Shaped<T>, E> {
                Ok(Shaped::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shaped<T>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Shaped { is: None, misshapen: true })
            }
            fn visit_str<E>(self, _: &str) -> Result<Shaped<T>, E> {
                Ok(Shaped { is: None, misshapen: true })
            }
            fn visit_bool<E>(self, _: bool) -> Result<Shaped<T>, E> {
                Ok(Shaped { is: None, misshapen: true })
            }
            fn visit_i64<E>(self, _: i64) -> Result<Shaped<T>, E> {
                Ok(Shaped { is: None, misshapen: true })
            }
            fn visit_u64<E>(self, _: u64) -> Result<Shaped<T>, E> {
                Ok(Shaped { is: None, misshapen: true })
            }
            fn visit_f64<E>(self, _: f64) -> Result<Shaped<T>, E> {
                Ok(Shaped { is: None, misshapen: true })
            }
        }
        deserializer.deserialize_any(V(PhantomData))
    }
}
