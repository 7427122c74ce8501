//! The structured outputs of Anthropic.
//!
//! Not taken: "recursive schemas", "numerical constraints", "string constraints", "array
//! constraints beyond `minItems` of 0 or 1", "`additionalProperties` set to anything other than
//! `false`".
//! <https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations>

use std::borrow::Cow;

use serde_json::Value;

use super::narrow::narrow;
use super::subset::{Cycles, Objects, References, Subset, Values, is_one_of, is_regular};
use crate::error::Error;

const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

const OUTPUT: Subset = Subset {
    wire: "Anthropic",
    keeps,
    objects: Objects::Closed,
    values: Values::Simple,
    references: References::Kept,
    cycles: Cycles::None,
    object_at_root: false,
};

/// The schema of an answer as Anthropic takes it.
pub(in crate::provider) fn anthropic_output(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    narrow(schema, &OUTPUT)
}

fn keeps(keyword: &str, value: &Value) -> bool {
    match keyword {
        "title" | "default" => true,
        "pattern" => is_regular(value),
        "format" => is_one_of(value, FORMATS),
        "minItems" => matches!(value.as_u64(), Some(0 | 1)),
        _ => false,
    }
}
