//! JSON objects that preserve the order of their fields, so that data is sent back exactly as
//! received.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::item::{ProviderData, RawJson};
use crate::provider::codec::lenient::array_elements;

/// The fields of an object in their original order, with their values as raw JSON. Parsed fields
/// are borrowed from the JSON.
#[derive(Clone, Debug, Default)]
pub(in crate::provider) struct OrderedFields<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> OrderedFields<'a> {
    /// Parses a JSON object. Returns `None` if `json` is not an object.
    pub(in crate::provider) fn parse(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Returns those elements of an array that are objects.
    pub(in crate::provider) fn parse_list(array: Option<&'a RawValue>) -> Vec<Self> {
        array_elements(array).into_iter().filter_map(|element| Self::parse(element.get())).collect()
    }

    /// Returns the same fields, copied so that they can be stored.
    pub(in crate::provider) fn into_owned(self) -> OrderedFields<'static> {
        let own = |(name, value): (Cow<'_, str>, Cow<'_, RawValue>)| {
            (Cow::Owned(name.into_owned()), Cow::Owned(value.into_owned()))
        };
        OrderedFields(self.0.into_iter().map(own).collect())
    }

    pub(in crate::provider) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    pub(in crate::provider) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// Returns the value of a field in an item's provider data, verbatim.
    pub(in crate::provider) fn provider_data_field(
        data: &ProviderData,
        name: &str,
    ) -> Option<Box<RawValue>> {
        OrderedFields::parse(data.value.as_str())?.get(name).map(ToOwned::to_owned)
    }

    /// Sets a field of the object. A new field is added at the end.
    pub(in crate::provider) fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(field, _)| field == name) {
            Some((_, old)) => *old = Cow::Owned(value),
            None => self.0.push((Cow::Owned(name.to_owned()), Cow::Owned(value))),
        }
    }

    /// Removes the fields for whose names `keeps` returns false.
    #[cfg(feature = "http")]
    pub(in crate::provider) fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| keeps(name));
    }

    /// Removes the fields with the given names from the object.
    pub(in crate::provider) fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(|(name, _)| !names.contains(&&**name));
        self
    }

    pub(in crate::provider) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::provider) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the names and values of the object's fields, in order.
    pub(in crate::provider) fn into_iter(
        self,
    ) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, RawValue>)> {
        self.0.into_iter()
    }

    /// Serializes the object, or returns `None` if the object is empty.
    pub(in crate::provider) fn into_non_empty_json(self) -> Option<RawJson> {
        if self.is_empty() { None } else { self.into_json() }
    }

    pub(in crate::provider) fn into_json(self) -> Option<RawJson> {
        RawJson::parse(&serde_json::to_string(&self).ok()?).ok()
    }

    /// Merges `extra` into the object. Objects are merged field by field, and any other value
    /// replaces the existing value.
    pub(in crate::provider) fn merge(
        &mut self,
        extra: &Map<String, Value>,
    ) -> Result<(), serde_json::Error> {
        for (name, value) in extra {
            let old = self.get(name).map_or(&b""[..], |old| old.get().as_bytes());
            let mut merged = Vec::new();
            Self::write_merged(&mut merged, old, value)?;
            self.set(name, serde_json::from_slice(&merged)?);
        }
        Ok(())
    }

    /// Writes the value that results from merging `extra` into the encoded value `old`.
    pub(in crate::provider) fn write_merged(
        out: &mut Vec<u8>,
        old: &[u8],
        extra: &Value,
    ) -> Result<(), serde_json::Error> {
        match (serde_json::from_slice::<OrderedFields<'_>>(old), extra) {
            (Ok(mut old), Value::Object(extra)) => {
                old.merge(extra)?;
                serde_json::to_writer(out, &old)
            }
            (_, value) => serde_json::to_writer(out, value),
        }
    }
}

/// The name of a field, borrowed if it contains no escapes.
#[derive(Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for OrderedFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for V<'a> {
            type Value = OrderedFields<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<OrderedFields<'a>, A::Error> {
                let mut fields = Vec::new();
                while let Some((FieldName(name), value)) = map.next_entry::<_, &'de RawValue>()? {
                    fields.push((name, Cow::Borrowed(value)));
                }
                Ok(OrderedFields(fields))
            }
        }
        deserializer.deserialize_map(V(PhantomData))
    }
}

impl Serialize for OrderedFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
