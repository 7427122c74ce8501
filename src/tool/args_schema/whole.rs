//! Validates arguments with a complete JSON Schema validator.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::tool::ToolSpec;
use crate::tool::args_schema::small;

/// The maximum number of values in arguments for which a complete diagnosis is made. For a
/// complete diagnosis, the validator collects the errors from all alternatives in a schema, and
/// all locations of each error. For larger arguments, the built-in validation looks for the
/// error first. If the built-in validation finds no error, a complete diagnosis is made of a
/// copy whose lists are truncated.
const MAX_DIAGNOSED_VALUES: usize = 1000;
/// The number of elements that are checked for errors in each list if the arguments contain
/// more than [`MAX_DIAGNOSED_VALUES`] values.
const MAX_DIAGNOSED_LIST_ELEMENTS: usize = 16;

pub(in crate::tool) struct Schema(jsonschema::Validator);

impl Schema {
    pub(in crate::tool) fn new(spec: &ToolSpec) -> Result<Self, Error> {
        jsonschema::validator_for(&spec.parameters.to_value()).map(Self).map_err(|error| {
            let message = format!("the schema of the tool `{}` is not valid: {error}", spec.name);
            Error::new(ErrorKind::InvalidRequest, message)
        })
    }

    pub(in crate::tool) fn check(&self, spec: &ToolSpec, args: &Value) -> Result<(), String> {
        match self.0.is_valid(args) {
            true => Ok(()),
            false => Err(self.violation_reason(&spec.parameters.to_value(), args)),
        }
    }

    /// Returns the reason why arguments do not match the schema. Memory use is bounded,
    /// regardless of the size of the arguments.
    fn violation_reason(&self, schema: &Value, args: &Value) -> String {
        let unknown = || "they do not fit the schema".to_owned();
        if !has_alternatives(schema) || has_at_most_values(args, &mut MAX_DIAGNOSED_VALUES.clone())
        {
            let error = self.0.validate(args).err();
            return error.map_or_else(unknown, |error| format_validation_error(&error, args));
        }
        if let Err(reason) = small::check(schema, args) {
            return reason;
        }
        let Some(shorter) = truncate_lists(args, &mut MAX_DIAGNOSED_VALUES.clone()) else {
            return unknown();
        };
        let mut errors = self.0.iter_errors(&shorter);
        let error = errors.find(|error| !is_caused_by_truncation(error));
        error.map_or_else(unknown, |error| format_validation_error(&error, &shorter))
    }
}

fn format_validation_error(error: &ValidationError<'_>, args: &Value) -> String {
    match error.instance_path().as_str() {
        "" => error.to_string(),
        pointer => format!("{error} (at `{}`)", format_json_pointer(pointer, args)),
    }
}

/// Returns whether a schema contains keywords for which the validator tries several
/// alternatives.
fn has_alternatives(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            matches!(name.as_str(), "anyOf" | "oneOf") || has_alternatives(value)
        }),
        Value::Array(values) => values.iter().any(has_alternatives),
        _ => false,
    }
}

/// Returns whether an error may have been caused by omitting list elements.
fn is_caused_by_truncation(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::MinItems { .. } | ValidationErrorKind::Contains)
}

/// Returns whether the number of values, counting `value` itself and all values nested in it,
/// is at most `left`.
fn has_at_most_values(value: &Value, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    match value {
        Value::Object(fields) => fields.values().all(|value| has_at_most_values(value, left)),
        Value::Array(values) => values.iter().all(|value| has_at_most_values(value, left)),
        _ => true,
    }
}

/// Returns a copy of the value with each list truncated to its first elements, or `None` if
/// even this copy consists of more than `left` values.
fn truncate_lists(value: &Value, left: &mut usize) -> Option<Value> {
    *left = left.checked_sub(1)?;
    Some(match value {
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields =
                fields.map(|(name, value)| Some((name.clone(), truncate_lists(value, left)?)));
            Value::Object(fields.collect::<Option<_>>()?)
        }
        Value::Array(values) => {
            let values = values.iter().take(MAX_DIAGNOSED_LIST_ELEMENTS);
            Value::Array(values.map(|value| truncate_lists(value, left)).collect::<Option<_>>()?)
        }
        other => other.clone(),
    })
}

/// Formats a JSON pointer (RFC 6901) in the path format of the built-in validation, for example
/// `deep.list[1]`.
fn format_json_pointer(pointer: &str, args: &Value) -> String {
    let mut place = String::new();
    let mut here = Some(args);
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        match here {
            Some(Value::Array(values)) => {
                place.extend(["[", &step, "]"]);
                here = step.parse().ok().and_then(|at: usize| values.get(at));
            }
            _ => {
                if !place.is_empty() {
                    place.push('.');
                }
                place.push_str(&step);
                here = here.and_then(|value| value.get(&step));
            }
        }
    }
    place
}
