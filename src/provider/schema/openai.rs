//! The strict mode of OpenAI's two wires.
//!
//! "`additionalProperties: false` must always be set in objects", "all fields must be required",
//! "the root level object of a schema must be an object, and not use `anyOf`"; recursion by `$defs`
//! and `#` is fine.
//! <https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas>

use std::borrow::Cow;

use serde_json::Value;

use super::narrow::narrow;
use super::subset::{Cycles, Objects, References, Subset, Values, is_one_of, is_regular};
use crate::error::Error;

const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

const STRICT: Subset = Subset {
    wire: "OpenAI's strict mode",
    keeps,
    objects: Objects::AllRequired,
    values: Values::Simple,
    references: References::Kept,
    cycles: Cycles::Any,
    object_at_root: true,
};

/// The schema of an answer as the strict mode of OpenAI's two wires takes it.
///
/// A property that is not required becomes required. One that has a `default` is then always
/// written by the model; another may be null, which is how that mode has optional properties.
pub(in crate::provider) fn openai_strict(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    narrow(schema, &STRICT)
}

fn keeps(keyword: &str, value: &Value) -> bool {
    match keyword {
        "title" | "multipleOf" | "minimum" | "maximum" | "exclusiveMinimum"
        | "exclusiveMaximum" | "minItems" | "maxItems" => true,
        "pattern" => is_regular(value),
        "format" => is_one_of(value, FORMATS),
        _ => false,
    }
}
