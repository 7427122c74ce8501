//! Reads the fields of a JSON object, and refuses those that nothing has read.

use serde_json::{Map, Value};
use turnstream::{Error, ErrorKind};

/// The fields of a JSON object that have not been read yet.
pub(crate) struct Fields {
    /// Where the object is in the request, for example `messages[2]`. Empty for the request itself.
    path: String,
    map: Map<String, Value>,
}

impl Fields {
    /// The fields of the object at `path`.
    pub(crate) fn of(value: Value, path: impl Into<String>) -> Result<Self, Error> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Self { path, map }),
            _ if path.is_empty() => Err(invalid("", "the request must be a JSON object")),
            _ => Err(invalid(&path, "this must be an object")),
        }
    }

    /// The path of a field.
    pub(crate) fn path(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    /// Takes a field. `null` counts as missing.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(invalid(&self.path(name), "this must be a string")),
        }
    }

    pub(crate) fn required_text(&mut self, name: &str) -> Result<String, Error> {
        self.text(name)?.ok_or_else(|| invalid(&self.path(name), "this field is missing"))
    }

    pub(crate) fn bool(&mut self, name: &str) -> Result<Option<bool>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(is_true)) => Ok(Some(is_true)),
            Some(_) => Err(invalid(&self.path(name), "this must be true or false")),
        }
    }

    /// Takes a number that fits into the type. -1 counts as missing, as in many clients.
    pub(crate) fn integer<T: TryFrom<u64>>(&mut self, name: &str) -> Result<Option<T>, Error> {
        let value = self.take(name).filter(|value| value.as_i64() != Some(-1));
        let Some(value) = value else { return Ok(None) };
        let number = value.as_u64().and_then(|number| T::try_from(number).ok());
        let message = "this must be a whole number within the usual range";
        number.map(Some).ok_or_else(|| invalid(&self.path(name), message))
    }

    #[expect(clippy::cast_possible_truncation, reason = "sampling needs no more digits")]
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f32>, Error> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_f64().map(|number| number as f32);
        number.map(Some).ok_or_else(|| invalid(&self.path(name), "this must be a number"))
    }

    /// Takes a penalty. A penalty of 0 has no effect and counts as missing.
    pub(crate) fn penalty(&mut self, name: &str) -> Result<Option<f32>, Error> {
        Ok(self.number(name)?.filter(|penalty| *penalty != 0.0))
    }

    /// Takes a list. A missing list is empty.
    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<Value>, Error> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => Err(invalid(&self.path(name), "this must be a list")),
        }
    }

    /// Takes a list of objects.
    pub(crate) fn objects(&mut self, name: &str) -> Result<Vec<Self>, Error> {
        let path = self.path(name);
        let list = self.list(name)?.into_iter().enumerate();
        list.map(|(n, value)| Self::of(value, format!("{path}[{n}]"))).collect()
    }

    /// Takes an object.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Self>, Error> {
        let path = self.path(name);
        self.take(name).map(|value| Self::of(value, path)).transpose()
    }

    /// Takes a string or a list of strings.
    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<String>, Error> {
        let path = self.path(name);
        let list = match self.take(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(single) => vec![single],
        };
        let text = |value| match value {
            Value::String(text) => Ok(text),
            _ => Err(invalid(&path, "this must be a string, or a list of strings")),
        };
        list.into_iter().map(text).collect()
    }

    /// Drops fields that have no effect.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.map.shift_remove(*name);
        }
    }

    /// Returns an error if a field is left that would have an effect.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let has_effect = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::Bool(true) | Value::String(_) => true,
        };
        match self.map.iter().find(|(_, value)| has_effect(value)) {
            Some((name, _)) => Err(unsupported(&self.path(name))),
            None => Ok(()),
        }
    }

    /// Returns an error that says that the value of a field is not supported.
    pub(crate) fn refuse(&self, name: &str) -> Error {
        unsupported(&self.path(name))
    }
}

/// Creates an error for an invalid value.
pub(crate) fn invalid(path: &str, message: &str) -> Error {
    let error = |message| Error::new(ErrorKind::InvalidRequest, message).with_status(400);
    match path {
        "" => error(message.to_owned()),
        path => error(format!("{path}: {message}")).with_parameter(path),
    }
}

/// Creates an error for a value that is valid, but not supported here.
pub(crate) fn unsupported(path: &str) -> Error {
    let message = format!("{path}: this is not supported here");
    Error::new(ErrorKind::Unsupported, message).with_status(400).with_parameter(path)
}
