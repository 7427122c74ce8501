//! JSON Schema as Gemini takes it, in `parametersJsonSchema` and `responseJsonSchema`.
//!
//! "Only the following properties are supported: `$id`, `$defs`, `$ref`, `$anchor`, `type`,
//! `format`, `title`, `description`, `enum` (for strings and numbers), `items`, `prefixItems`,
//! `minItems`, `maxItems`, `minimum`, `maximum`, `anyOf`, `oneOf` (interpreted the same as `anyOf`),
//! `properties`, `additionalProperties`, `required`. […] Cyclic references are unrolled to a limited
//! degree and, as such, may only be used within non-required properties. […] If `$ref` is set on a
//! sub-schema, no other properties, except for those starting as a `$`, may be set."
//! <https://ai.google.dev/api/generate-content#FIELDS.response_json_schema>
//!
//! The older fields `parameters` and `responseSchema` know less, a subset of what `OpenAPI` has.

use std::borrow::Cow;

use serde_json::Value;

use super::narrow::narrow;
use super::subset::{Cycles, Objects, References, Subset, Values, is_one_of};
use crate::error::Error;

const FORMATS: &[&str] = &["date-time", "date", "time"];

const JSON_SCHEMA: Subset = Subset {
    wire: "Gemini",
    keeps,
    objects: Objects::Open,
    values: Values::TextAndNumbers,
    references: References::Kept,
    cycles: Cycles::Optional,
    object_at_root: false,
};

/// A schema, of a tool or an answer, as Gemini takes it in `parametersJsonSchema` and
/// `responseJsonSchema`.
pub(in crate::provider) fn gemini(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    narrow(schema, &JSON_SCHEMA)
}

fn keeps(keyword: &str, value: &Value) -> bool {
    match keyword {
        "title" | "minItems" | "maxItems" | "minimum" | "maximum" | "propertyOrdering" => true,
        "format" => is_one_of(value, FORMATS),
        _ => false,
    }
}
