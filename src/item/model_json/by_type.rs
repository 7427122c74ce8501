//! Reads values as their Rust type accepts them.

use std::borrow::Cow;
use std::fmt;

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use crate::item::model_json::fields::{JsonFields, parse_elements};
use crate::item::model_json::numbers::with_integers;

/// The maximum number of places at which `null` fields are left out.
const MAX_PLACES: usize = 32;

/// The prefix with which a field is renamed to find out whether its object is a struct.
const RENAMED: &str = "\u{0}renamed ";

/// The reason why JSON cannot be deserialized into a type.
#[derive(Debug)]
pub(crate) struct TypeMismatch {
    pub(crate) error: serde_json::Error,
    /// The path to the error, or `None` if the error follows the value.
    path: Option<Path>,
}

impl TypeMismatch {
    /// Returns the path to the value that does not match. The path `.` stands for the whole value.
    pub(crate) fn path(&self) -> String {
        self.path.as_ref().map_or_else(|| ".".to_owned(), Path::to_string)
    }

    /// Returns the value in the JSON text to which the path leads.
    fn value_in<'a>(&self, json: &'a str) -> Option<&'a str> {
        let mut value = json;
        for segment in self.path.as_ref()? {
            value = match segment {
                Segment::Seq { index } => parse_elements(value)?.get(*index).copied()?,
                Segment::Map { key: name } | Segment::Enum { variant: name } => {
                    let fields = JsonFields::parse(value)?.0;
                    match fields.into_iter().rfind(|(field, _)| field == name)? {
                        (_, Cow::Borrowed(value)) => value,
                        (_, Cow::Owned(_)) => return None,
                    }
                }
                Segment::Unknown => return None,
            };
        }
        Some(value)
    }
}

impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path().as_str() {
            "." => write!(f, "{}", self.error),
            path => write!(f, "{} (at `{path}`)", self.error),
        }
    }
}

/// Deserializes a JSON text. If the text does not match the type, the text is read again with whole
/// numbers as integers, and then without `null` fields of structs. If it still does not match, the
/// error concerns the first value that cannot be read in any of these forms.
pub(crate) fn read_by_type<T: DeserializeOwned>(json: &str) -> Result<T, TypeMismatch> {
    let first = match deserialize(json) {
        Ok(value) => return Ok(value),
        Err(first) if !first.error.is_data() => return Err(first),
        Err(first) => first,
    };
    let (mut text, mut later, mut has_integers) = (Cow::Borrowed(json), None, false);
    for _ in 0..MAX_PLACES {
        let mismatch = later.as_ref().unwrap_or(&first);
        let is_null = mismatch.value_in(&text) == Some("null");
        let integers = match is_null || has_integers {
            true => None,
            false => with_integers(&text),
        };
        has_integers |= !is_null;
        let changed = integers.or_else(|| without_nulls::<T>(&text, mismatch, is_null));
        let Some(changed) = changed else { break };
        match deserialize(&changed) {
            Ok(value) => return Ok(value),
            Err(next) => later = Some(next),
        }
        text = Cow::Owned(changed);
    }
    Err(match later {
        // The model can correct only what is wrong in any form.
        Some(later) if later.path() != first.path() => later,
        _ => first,
    })
}

/// Deserializes a call's arguments, as [`read_by_type`] does. A zero-sized type, such as `()`, can
/// be deserialized from any object.
pub(crate) fn read_arguments_by_type<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    read_by_type(json).or_else(|mismatch| match size_of::<T>() {
        0 if JsonFields::parse(json).is_some() => {
            deserialize("null").map_err(|_| mismatch.to_string())
        }
        _ => Err(mismatch.to_string()),
    })
}

fn deserialize<T: DeserializeOwned>(json: &str) -> Result<T, TypeMismatch> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = Some(error.path().clone());
        TypeMismatch { error: error.into_inner(), path }
    })?;
    reader.end().map_err(|error| TypeMismatch { error, path: None })?;
    Ok(value)
}

/// A step to a value inside of a JSON text. An index stands for all elements of its list, which
/// have the same type.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Element,
    Field(String),
}

/// Returns the text without the `null` fields that the type does not accept, or `None` if the
/// mismatch has another cause.
///
/// Only the fields of structs are left out: in a map, an entry with `null` is not the same as no
/// entry. A struct ignores or rejects a field with another name, whereas a map accepts any name and
/// still rejects the `null`.
fn without_nulls<T: DeserializeOwned>(
    json: &str,
    mismatch: &TypeMismatch,
    is_null: bool,
) -> Option<String> {
    let mut place = steps(mismatch.path.as_ref()?)?;
    let name = match is_null {
        true => match place.pop()? {
            Step::Field(name) => Some(name),
            Step::Element => return None,
        },
        // The path to a field of a tagged enum, or of a flattened struct, ends at the whole object.
        false => None,
    };
    let is_it = |field: &str, value: &str| {
        value == "null" && name.as_ref().is_none_or(|name| name == field)
    };
    let renamed = edit_objects(json, &place, &|fields: &mut JsonFields<'_>| {
        for (field, value) in &mut fields.0 {
            if is_it(field, value) {
                *field = format!("{RENAMED}{field}").into();
            }
        }
    })?;
    let is_struct = match deserialize::<T>(&renamed) {
        Ok(_) => true,
        Err(other) => {
            other.error.to_string().starts_with(&format!("unknown field `{RENAMED}"))
                || is_null && is_elsewhere(&other, &place)
        }
    };
    let remove = |fields: &mut JsonFields<'_>| {
        fields.0.retain(|(field, value)| !is_it(field, value));
    };
    is_struct.then(|| edit_objects(json, &place, &remove))?
}

/// Returns whether a mismatch concerns neither the object at `place` nor a renamed field of it.
fn is_elsewhere(mismatch: &TypeMismatch, place: &[Step]) -> bool {
    let Some(steps) = mismatch.path.as_ref().and_then(steps) else { return false };
    let is_renamed = matches!(steps.last(), Some(Step::Field(name)) if name.starts_with(RENAMED));
    steps != place && !is_renamed
}

fn steps(path: &Path) -> Option<Vec<Step>> {
    let step = |segment: &Segment| match segment {
        Segment::Seq { .. } => Some(Step::Element),
        Segment::Map { key: name } | Segment::Enum { variant: name } => {
            Some(Step::Field(name.clone()))
        }
        Segment::Unknown => None,
    };
    path.iter().map(step).collect()
}

/// Applies `edit` to the objects at a place inside of a JSON text, and returns the resulting text.
/// Returns `None` if there is no object at this place.
fn edit_objects(json: &str, place: &[Step], edit: &dyn Fn(&mut JsonFields<'_>)) -> Option<String> {
    match place.split_first() {
        None => {
            let mut fields = JsonFields::parse(json)?;
            edit(&mut fields);
            Some(fields.to_json())
        }
        Some((Step::Element, rest)) => {
            let elements = parse_elements(json)?.into_iter().map(|element| {
                edit_objects(element, rest, edit).unwrap_or_else(|| element.to_owned())
            });
            Some(format!("[{}]", elements.collect::<Vec<_>>().join(",")))
        }
        Some((Step::Field(name), rest)) => {
            let mut fields = JsonFields::parse(json)?;
            for (_, value) in fields.0.iter_mut().filter(|(field, _)| field == name) {
                if let Some(edited) = edit_objects(value, rest, edit) {
                    *value = Cow::Owned(edited);
                }
            }
            Some(fields.to_json())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Search {
        query: String,
        limit: u32,
        ratio: f64,
        tags: Option<Vec<i64>>,
        inner: Vec<Inner>,
        shape: Option<Shape>,
        counts: HashMap<String, u32>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        n: i8,
        on: bool,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Shape {
        Circle {
            radius: u32,
            #[serde(default)]
            width: u32,
        },
    }

    fn read(json: &str) -> Search {
        read_by_type(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    #[track_caller]
    fn check_mismatch(json: &str, message: &str) {
        let mismatch = read_by_type::<Search>(json).unwrap_err().to_string();
        assert!(mismatch.contains(message), "{mismatch}");
    }

    #[test]
    fn a_whole_number_is_read_as_an_integer() {
        let expected = Search { limit: 5, ratio: 2.0, tags: Some(vec![1, 2]), ..Search::default() };
        assert_eq!(read(r#"{"limit":5.0,"ratio":2.0,"tags":[1.0,2]}"#), expected);
        assert_eq!(read_by_type::<Vec<u8>>("[1e1]").unwrap(), [10]);
        check_mismatch(r#"{"limit":5.5}"#, "5.5");
        check_mismatch(r#"{"limit":"5"}"#, "string \"5\"");
        check_mismatch(r#"{"query":5.0}"#, "expected a string at line 1 column 12 (at `query`)");
    }

    #[test]
    fn a_null_field_of_a_struct_is_read_as_absent() {
        let expected = Search { query: "a".into(), limit: 1, ..Search::default() };
        assert_eq!(
            read(r#"{"limit":1.0,"ratio":null,"query":"a","tags":null,"inner":null}"#),
            expected
        );
        let expected = Search {
            inner: vec![Inner { n: 1, on: false }, Inner { n: 0, on: true }],
            ..Search::default()
        };
        assert_eq!(read(r#"{"inner":[{"n":1.0,"on":null},{"n":null,"on":true}]}"#), expected);
    }

    #[test]
    fn fields_of_a_tagged_enum_are_read_too() {
        let expected =
            Search { shape: Some(Shape::Circle { radius: 2, width: 0 }), ..Search::default() };
        assert_eq!(read(r#"{"shape":{"kind":"circle","radius":2.0,"width":null}}"#), expected);
    }

    #[test]
    fn a_null_in_a_map_or_a_list_or_for_a_required_field_is_a_mismatch() {
        #[derive(Debug, Deserialize)]
        struct Required {
            #[expect(dead_code, reason = "it is only deserialized")]
            n: u32,
        }
        check_mismatch(r#"{"counts":{"a":null}}"#, "(at `counts.a`)");
        check_mismatch(r#"{"tags":[null]}"#, "(at `tags[0]`)");
        let error = read_by_type::<Required>(r#"{"n":null}"#).unwrap_err().to_string();
        assert!(error.starts_with("invalid type: null"), "{error}");
        let numbered = read_by_type::<HashMap<u32, u32>>(r#"{"1":null}"#).unwrap_err();
        assert_eq!(numbered.path(), "1");
    }

    #[test]
    fn arguments_without_fields_are_read_from_any_object() {
        assert_eq!(read_arguments_by_type::<()>(r#"{"extra":1}"#), Ok(()));
        assert!(read_arguments_by_type::<()>("[]").is_err());
    }
}
