//! The subsets of the wires, as their vendors tell of them.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::rewrite::narrow;
use super::subset::{Cycles, Objects, References, Subset, Values, is_one_of, is_regular};
use crate::error::Error;

/// The strict mode of OpenAI's two wires.
///
/// "`additionalProperties: false` must always be set in objects", "all fields must be required",
/// "the root level object of a schema must be an object, and not use `anyOf`"; recursion by `$defs`
/// and `#` is fine.
/// <https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas>
const OPENAI_STRICT: Subset = Subset {
    wire: "OpenAI's strict mode",
    keeps: |keyword, value| match keyword {
        "title" | "multipleOf" | "minimum" | "maximum" | "exclusiveMinimum"
        | "exclusiveMaximum" | "minItems" | "maxItems" => true,
        "pattern" => is_regular(value),
        "format" => is_one_of(value, FORMATS),
        _ => false,
    },
    objects: Objects::AllRequired,
    values: Values::Simple,
    references: References::Kept,
    cycles: Cycles::Any,
    object_at_root: true,
};

/// The structured outputs of Anthropic.
///
/// Not taken: "recursive schemas", "numerical constraints", "string constraints", "array
/// constraints beyond `minItems` of 0 or 1", "`additionalProperties` set to anything other than
/// `false`".
/// <https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations>
const ANTHROPIC_OUTPUT: Subset = Subset {
    wire: "Anthropic",
    keeps: |keyword, value| match keyword {
        "title" | "default" => true,
        "pattern" => is_regular(value),
        "format" => *value == "uri" || is_one_of(value, FORMATS),
        "minItems" => matches!(value.as_u64(), Some(0 | 1)),
        _ => false,
    },
    objects: Objects::Closed,
    cycles: Cycles::None,
    object_at_root: false,
    ..OPENAI_STRICT
};

/// JSON Schema as Gemini takes it, in `parametersJsonSchema` and `responseJsonSchema`.
///
/// "Only the following properties are supported: `$id`, `$defs`, `$ref`, `$anchor`, `type`,
/// `format`, `title`, `description`, `enum` (for strings and numbers), `items`, `prefixItems`,
/// `minItems`, `maxItems`, `minimum`, `maximum`, `anyOf`, `oneOf` (interpreted the same as `anyOf`),
/// `properties`, `additionalProperties`, `required`. […] Cyclic references are unrolled to a limited
/// degree and, as such, may only be used within non-required properties. […] If `$ref` is set on a
/// sub-schema, no other properties, except for those starting as a `$`, may be set."
/// <https://ai.google.dev/api/generate-content#FIELDS.response_json_schema>
///
/// The older fields `parameters` and `responseSchema` know less, a subset of what `OpenAPI` has.
const GEMINI: Subset = Subset {
    wire: "Gemini",
    keeps: |keyword, value| match keyword {
        "title" | "minItems" | "maxItems" | "minimum" | "maximum" | "propertyOrdering" => true,
        "format" => is_one_of(value, &["date-time", "date", "time"]),
        _ => false,
    },
    objects: Objects::Open,
    values: Values::TextAndNumbers,
    references: References::Kept,
    cycles: Cycles::Optional,
    object_at_root: false,
};

/// JSON Schema as Ollama takes it for the parameters of a tool.
///
/// The server reads it into a type of its own, `api.ToolFunctionParameters`, drops every keyword that
/// the type does not have, `$ref` among them, and refuses values of another type: a schema that is
/// `true`, or a root of several types.
/// <https://github.com/ollama/ollama/blob/main/api/types.go>
const OLLAMA_PARAMETERS: Subset = Subset {
    wire: "Ollama",
    keeps: |_, _| false,
    references: References::WrittenOut,
    cycles: Cycles::None,
    ..GEMINI
};

/// The formats of a text that OpenAI and Anthropic both know.
const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// The schema of an answer as the strict mode of OpenAI's two wires takes it.
///
/// A property that is not required becomes required. One that has a `default` is then always
/// written by the model; another may be null, which is how that mode has optional properties.
pub(in crate::provider) fn openai_strict(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    narrow(schema, &OPENAI_STRICT)
}

/// The schema of an answer as Anthropic takes it.
pub(in crate::provider) fn anthropic_output(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    narrow(schema, &ANTHROPIC_OUTPUT)
}

/// A schema, of a tool or an answer, as Gemini takes it in `parametersJsonSchema` and
/// `responseJsonSchema`.
pub(in crate::provider) fn gemini(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    narrow(schema, &GEMINI)
}

/// The schema of a tool's parameters as Ollama takes it.
pub(in crate::provider) fn ollama_parameters(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    let mut narrowed = narrow(schema, &OLLAMA_PARAMETERS)?;
    // A tool may say nothing of what it takes.
    let kind = ["type", "anyOf"].iter().find_map(|keyword| narrowed.get(keyword));
    match kind {
        Some(kind) if kind == "object" => Ok(narrowed),
        Some(_) => Err(OLLAMA_PARAMETERS.refuse("#", "parameters that are not always an object")),
        None => {
            narrowed.to_mut()["type"] = json!("object");
            Ok(narrowed)
        }
    }
}
