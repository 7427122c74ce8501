//! The value of an effect.

use std::any::Any;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind};
use crate::item::Json;

/// The value of an effect: as it was made, or as it was read. It becomes JSON only where a world asks for
/// that.
pub struct Value(Held);

enum Held {
    None,
    Made(Box<dyn Made>),
    Read(Json),
}

/// A value of any type that can be serialized.
trait Made: Send {
    fn json(&self) -> Result<Json, serde_json::Error>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Serialize + Send + 'static> Made for T {
    fn json(&self) -> Result<Json, serde_json::Error> {
        Json::new(self)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Value {
    /// A value that was made.
    pub fn new<T: Serialize + Send + 'static>(value: T) -> Self {
        Self(Held::Made(Box::new(value)))
    }

    /// A value that was kept as JSON.
    pub fn from_json(json: Json) -> Self {
        Self(Held::Read(json))
    }

    /// The value that says nothing: the default of its type.
    pub fn none() -> Self {
        Self(Held::None)
    }

    /// The value as JSON, to be kept; `null` for [`none`](Self::none).
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if it cannot be written as JSON.
    pub fn to_json(&self) -> Result<Json, Error> {
        match &self.0 {
            Held::None => Ok(serde_json::Value::Null.into()),
            Held::Read(json) => Ok(json.clone()),
            Held::Made(made) => made.json().map_err(|error| refused("written", error)),
        }
    }

    /// The value itself; `None` for [`none`](Self::none).
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if it was read from JSON of something else.
    pub fn get<T: DeserializeOwned + 'static>(self) -> Result<Option<T>, Error> {
        match self.0 {
            Held::None => Ok(None),
            Held::Read(json) => json.get().map(Some).map_err(|error| refused("read", error)),
            // Law: what was made for a key is of the type that is asked for.
            Held::Made(made) => Ok(made.into_any().downcast().ok().map(|made| *made)),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Held::None => "Value(none)",
            Held::Made(_) => "Value(made)",
            Held::Read(_) => "Value(read)",
        })
    }
}

fn refused(what: &str, error: serde_json::Error) -> Error {
    let message = format!("the value of an effect cannot be {what}: {error}");
    Error::new(ErrorKind::Store, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_same_as_it_was_made_and_as_it_was_read() {
        let made = Value::new(vec![1, 2]);
        let json = made.to_json().unwrap();
        assert_eq!(json.as_str(), "[1,2]");
        assert_eq!(made.get::<Vec<i32>>().unwrap(), Some(vec![1, 2]));
        assert_eq!(Value::from_json(json).get::<Vec<i32>>().unwrap(), Some(vec![1, 2]));
        assert_eq!(Value::none().get::<Vec<i32>>().unwrap(), None);
        assert_eq!(Value::none().to_json().unwrap().as_str(), "null");
    }

    #[test]
    fn json_of_something_else_is_an_error_of_the_store() {
        let text = Value::from_json(serde_json::json!("two").into());
        assert_eq!(text.get::<Vec<i32>>().unwrap_err().kind(), ErrorKind::Store);
        let keys_are_no_strings = std::collections::HashMap::from([((1, 2), 3)]);
        let error = Value::new(keys_are_no_strings).to_json().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store);
    }
}
