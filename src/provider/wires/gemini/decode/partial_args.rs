//! Assembles arguments from pieces that each contain a path and a value. Vertex AI streams
//! arguments in this format:
//! <https://docs.cloud.google.com/vertex-ai/generative-ai/docs/multimodal/function-calling#streaming-fc>.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::error::{Error, ErrorKind};
use crate::item::{MAX_JSON_VALUES, from_bounded_json};
use crate::provider::codec::failure::protocol_error;
use crate::provider::codec::ordered_fields::OrderedFields;

/// The maximum nesting depth of arguments. Arguments that are nested more deeply could not be
/// parsed again.
const MAX_DEPTH: usize = 100;

/// The upper bound for exact integers. All integers below this value can be represented exactly by
/// a double, the API's number type.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// The arguments received so far for a call.
#[derive(Debug)]
pub(super) struct PartialArguments {
    root: Value,
    /// The number of values that the pieces have created in `root`.
    value_count: usize,
    /// The paths of the strings that are not complete yet.
    unfinished_paths: BTreeSet<String>,
}

/// A step in a path, which leads to a field of an object or to an element of an array.
#[derive(Debug, PartialEq)]
enum PathStep {
    Field(String),
    Element(usize),
}

impl PartialArguments {
    pub(super) fn new() -> Self {
        let root = Value::Object(Map::new());
        Self { root, value_count: 0, unfinished_paths: BTreeSet::new() }
    }

    /// Sets the initial arguments, which were received as a single object.
    pub(super) fn set_initial(&mut self, whole: &str) -> Result<(), Error> {
        self.root = from_bounded_json(whole).map_err(|_| arguments_error("are not an object"))?;
        Ok(())
    }

    /// Stores the next piece of the arguments at its path. A string may be split into several
    /// pieces: `willContinue` is "Whether this is not the last part of the same `json_path`".
    ///
    /// Returns an error for any malformed piece, because partially known arguments cannot be used.
    pub(super) fn push(&mut self, piece: &RawValue) -> Result<(), Error> {
        let fields = OrderedFields::parse(piece.get())
            .ok_or_else(|| arguments_error("contain an invalid piece"))?;
        let path: String =
            read_field(&fields, "jsonPath")?.ok_or_else(|| arguments_error("lack a path"))?;
        let will_continue = read_field(&fields, "willContinue")?.unwrap_or(false);
        let open = self.unfinished_paths.contains(&path);
        let value = match read_value(&fields)? {
            None if open => Value::from(""),
            None => return Err(arguments_error("lack a value")),
            Some(value) if will_continue && !value.is_string() => {
                return Err(arguments_error("continue a value that is not text"));
            }
            Some(value) => value,
        };
        match (self.slot_at(&path)?, value) {
            ((place, SlotState::Created), value) => *place = value,
            ((Value::String(text), SlotState::Existing), Value::String(more)) => {
                text.push_str(&more);
            }
            ((_, SlotState::Existing), _) => {
                return Err(arguments_error("set one value twice"));
            }
        }
        match will_continue {
            true => self.unfinished_paths.insert(path),
            false => self.unfinished_paths.remove(&path),
        };
        Ok(())
    }

    /// Returns the complete arguments as JSON text, or `None` if a string is incomplete.
    pub(super) fn into_complete_json(self) -> Option<String> {
        self.unfinished_paths.is_empty().then(|| self.root.to_string())
    }

    /// Returns the value at a path, creating it if necessary.
    fn slot_at(&mut self, path: &str) -> Result<(&mut Value, SlotState), Error> {
        let steps = parse_path(path).ok_or_else(|| arguments_error("have an invalid path"))?;
        if steps.is_empty() || steps.len() > MAX_DEPTH {
            return Err(arguments_error("have a path that is empty or too deep"));
        }
        let (mut place, mut is) = (&mut self.root, SlotState::Existing);
        for step in &steps {
            if is == SlotState::Created {
                *place = match step {
                    PathStep::Field(_) => Value::Object(Map::new()),
                    PathStep::Element(_) => Value::Array(Vec::new()),
                };
            }
            (place, is) = child_slot(place, step)?;
            self.value_count += usize::from(is == SlotState::Created);
            if self.value_count > MAX_JSON_VALUES {
                let message = format!("the arguments have more than {MAX_JSON_VALUES} JSON values");
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
        }
        Ok((place, is))
    }
}

/// Specifies whether the value at a path already existed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SlotState {
    Created,
    Existing,
}

fn child_slot<'v>(
    outer: &'v mut Value,
    step: &PathStep,
) -> Result<(&'v mut Value, SlotState), Error> {
    match (outer, step) {
        (Value::Object(fields), PathStep::Field(name)) => {
            let is =
                if fields.contains_key(name) { SlotState::Existing } else { SlotState::Created };
            Ok((fields.entry(name.as_str()).or_insert(Value::Null), is))
        }
        (Value::Array(elements), PathStep::Element(at)) => {
            let is = if *at == elements.len() { SlotState::Created } else { SlotState::Existing };
            if is == SlotState::Created {
                elements.push(Value::Null);
            }
            // An index past the end would skip elements that were never sent.
            let element =
                elements.get_mut(*at).ok_or_else(|| arguments_error("skip an element"))?;
            Ok((element, is))
        }
        _ => Err(arguments_error("set one value twice")),
    }
}

/// Returns the single value in a piece of arguments.
fn read_value(fields: &OrderedFields<'_>) -> Result<Option<Value>, Error> {
    let text = read_field::<String>(fields, "stringValue")?.map(Value::String);
    let number = match read_field::<Number>(fields, "numberValue")? {
        Some(number) => {
            Some(Value::Number(normalize_number(&number).ok_or_else(not_understood_error)?))
        }
        None => None,
    };
    let flag = read_field::<bool>(fields, "boolValue")?.map(Value::Bool);
    let mut given = [text, number, flag].into_iter().flatten();
    match (given.next(), given.next(), fields.get("nullValue")) {
        (Some(_), Some(_), _) => Err(arguments_error("set one value twice")),
        (Some(value), None, _) => Ok(Some(value)),
        (None, _, Some(_)) => Ok(Some(Value::Null)),
        (None, _, None) => Ok(None),
    }
}

/// Converts a double with an integral value to an integer, because the API sends integers as
/// doubles. Returns `None` if the number is not a finite double.
fn normalize_number(number: &Number) -> Option<Number> {
    match (number.as_i64(), number.as_u64(), number.as_f64()?) {
        (Some(whole), ..) => Some(whole.into()),
        (None, Some(whole), _) => Some(whole.into()),
        (.., double) if double.fract() == 0.0 && double.abs() < MAX_EXACT_INTEGER =>
        {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole, and not too large")]
            Some(Number::from(double as i64))
        }
        (.., double) => Number::from_f64(double),
    }
}

fn read_field<T: DeserializeOwned>(
    fields: &OrderedFields<'_>,
    name: &str,
) -> Result<Option<T>, Error> {
    let Some(raw) = fields.get(name) else { return Ok(None) };
    serde_json::from_str(raw.get()).map_err(|_| not_understood_error())
}

fn not_understood_error() -> Error {
    arguments_error("contain a piece that is not understood")
}

/// Parses a path such as `$.a.b[0]['c.d']`, in the subset of RFC 9535 that identifies a single
/// value.
fn parse_path(path: &str) -> Option<Vec<PathStep>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let step;
        (step, rest) = match rest.strip_prefix('.') {
            Some(named) => {
                let (name, rest) = named.split_at(named.find(['.', '[']).unwrap_or(named.len()));
                (!matches!(name, "" | "*")).then(|| (PathStep::Field(name.to_owned()), rest))?
            }
            None => parse_brackets(rest.strip_prefix('[')?)?,
        };
        steps.push(step);
    }
    Some(steps)
}

fn parse_brackets(inside: &str) -> Option<(PathStep, &str)> {
    let Some(quote @ ('\'' | '"')) = inside.chars().next() else {
        let (number, rest) = inside.split_once(']')?;
        return Some((PathStep::Element(number.parse().ok()?), rest));
    };
    let mut json = String::from("\"");
    let mut chars = inside.char_indices().skip(1);
    loop {
        match chars.next()? {
            (_, '\\') => match chars.next()? {
                (_, '\'') => json.push('\''),
                (_, escaped) => json.extend(['\\', escaped]),
            },
            (at, end) if end == quote => {
                json.push('"');
                let name = serde_json::from_str(&json).ok()?;
                let rest = inside.get(at..)?.strip_prefix(quote)?.strip_prefix(']')?;
                return Some((PathStep::Field(name), rest));
            }
            (_, '"') => json.push_str("\\\""),
            (_, other) => json.push(other),
        }
    }
}

fn arguments_error(how: &str) -> Error {
    protocol_error(format!("the arguments of a tool call {how}"))
}

#[cfg(test)]
mod tests;
