//! The value of an effect.

use std::any::Any;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind};
use crate::item::RawJson;

/// The value of an effect, held either as a typed value or as stored JSON. A typed value is
/// converted to JSON only if a world needs the JSON.
pub struct EffectValue(ValueRepr);

enum ValueRepr {
    None,
    Typed(Box<dyn ErasedValue>),
    Json(RawJson),
}

/// A trait for values of any type that can be serialized.
trait ErasedValue: Send {
    fn to_json_value(&self) -> Result<RawJson, serde_json::Error>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Serialize + Send + 'static> ErasedValue for T {
    fn to_json_value(&self) -> Result<RawJson, serde_json::Error> {
        RawJson::new(self)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl EffectValue {
    /// Creates an effect value from a typed value, which is serialized only if a world stores it.
    pub fn new<T: Serialize + Send + 'static>(value: T) -> Self {
        Self(ValueRepr::Typed(Box::new(value)))
    }

    /// Creates an effect value from JSON that [`to_json`](Self::to_json) returned in an earlier
    /// attempt. The JSON is parsed when the run reads the value.
    pub fn from_json(json: RawJson) -> Self {
        Self(ValueRepr::Json(json))
    }

    /// Creates the empty value, which stands for the default value of the effect's type.
    pub fn empty() -> Self {
        Self(ValueRepr::None)
    }

    /// Converts the value to JSON, so that it can be stored. The [`empty`](Self::empty) value
    /// becomes `null`.
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](ErrorKind::Store) error if the value cannot be serialized to JSON.
    pub fn to_json(&self) -> Result<RawJson, Error> {
        match &self.0 {
            ValueRepr::None => Ok(serde_json::Value::Null.into()),
            ValueRepr::Json(json) => Ok(json.clone()),
            ValueRepr::Typed(made) => {
                made.to_json_value().map_err(|error| value_error("written", error))
            }
        }
    }

    /// Converts the value to the type `T`. Returns `None` if the value is [`empty`](Self::empty).
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](ErrorKind::Store) error if the stored JSON does not match the type.
    pub fn into_typed<T: DeserializeOwned + 'static>(self) -> Result<Option<T>, Error> {
        match self.0 {
            ValueRepr::None => Ok(None),
            ValueRepr::Json(json) => {
                json.deserialize_as().map(Some).map_err(|error| value_error("read", error))
            }
            // The value that is produced for a key always has the type that is requested for that
            // key.
            ValueRepr::Typed(made) => Ok(made.into_any().downcast().ok().map(|made| *made)),
        }
    }
}

impl fmt::Debug for EffectValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ValueRepr::None => "Value(none)",
            ValueRepr::Typed(_) => "Value(made)",
            ValueRepr::Json(_) => "Value(read)",
        })
    }
}

fn value_error(what: &str, error: serde_json::Error) -> Error {
    let message = format!("the value of an effect cannot be {what}: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_value_round_trips_through_json() {
        let made = EffectValue::new(vec![1, 2]);
        let json = made.to_json().unwrap();
        assert_eq!(json.as_str(), "[1,2]");
        assert_eq!(made.into_typed::<Vec<i32>>().unwrap(), Some(vec![1, 2]));
        assert_eq!(
            EffectValue::from_json(json).into_typed::<Vec<i32>>().unwrap(),
            Some(vec![1, 2])
        );
        assert_eq!(EffectValue::empty().into_typed::<Vec<i32>>().unwrap(), None);
        assert_eq!(EffectValue::empty().to_json().unwrap().as_str(), "null");
    }

    #[test]
    fn json_of_another_type_is_a_store_error() {
        let text = EffectValue::from_json(serde_json::json!("two").into());
        assert_eq!(text.into_typed::<Vec<i32>>().unwrap_err().kind(), ErrorKind::Store);
        let keys_are_no_strings = std::collections::HashMap::from([((1, 2), 3)]);
        let error = EffectValue::new(keys_are_no_strings).to_json().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store);
    }
}
