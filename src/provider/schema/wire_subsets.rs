//! The subsets of the wires, as their vendors tell of them.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::rewrite::rewrite_for_subset;
use super::subset::{
    Cycles, Objects, References, SchemaSubset, Values, is_regular_pattern, is_supported,
};
use crate::error::Error;

/// The strict mode of OpenAI's two wires.
///
/// "`additionalProperties: false` must always be set in objects", "all fields must be required",
/// "the root level object of a schema must be an object, and not use `anyOf`"; recursion by `$defs`
/// and `#` is fine.
/// <https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas>
const OPENAI_STRICT: SchemaSubset = SchemaSubset {
    wire: "OpenAI's strict mode",
    kept_keywords: |keyword, value| match keyword {
        "title" | "multipleOf" | "minimum" | "maximum" | "exclusiveMinimum"
        | "exclusiveMaximum" | "minItems" | "maxItems" => true,
        "pattern" => is_regular_pattern(value),
        "format" => is_supported(value, GEMINI_FORMATS),
        _ => false,
    },
    objects: Objects::AllRequired,
    values: Values::Simple,
    references: References::Kept,
    cycles: Cycles::Any,
    requires_root_object: true,
};

/// The structured outputs of Anthropic.
///
/// Not taken: "recursive schemas", "numerical constraints", "string constraints", "array
/// constraints beyond `minItems` of 0 or 1", "`additionalProperties` set to anything other than
/// `false`".
/// <https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations>
const ANTHROPIC_OUTPUT: SchemaSubset = SchemaSubset {
    wire: "Anthropic",
    kept_keywords: |keyword, value| match keyword {
        "title" | "default" => true,
        "pattern" => is_regular_pattern(value),
        "format" => *value == "uri" || is_supported(value, GEMINI_FORMATS),
        "minItems" => matches!(value.as_u64(), Some(0 | 1)),
        _ => false,
    },
    objects: Objects::Closed,
    cycles: Cycles::None,
    requires_root_object: false,
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
const GEMINI: SchemaSubset = SchemaSubset {
    wire: "Gemini",
    kept_keywords: |keyword, value| match keyword {
        "title" | "minItems" | "maxItems" | "minimum" | "maximum" | "propertyOrdering" => true,
        "format" => is_supported(value, &["date-time", "date", "time"]),
        _ => false,
    },
    objects: Objects::Open,
    values: Values::TextAndNumbers,
    references: References::Kept,
    cycles: Cycles::Optional,
    requires_root_object: false,
};

/// JSON Schema as Ollama takes it for the parameters of a tool.
///
/// The server reads it into a type of its own, `api.ToolFunctionParameters`, drops every keyword that
/// the type does not have, `$ref` among them, and refuses values of another type: a schema that is
/// `true`, or a root of several types.
/// <https://github.com/ollama/ollama/blob/main/api/types.go>
const OLLAMA_PARAMETERS: SchemaSubset = SchemaSubset {
    wire: "Ollama",
    kept_keywords: |_, _| false,
    references: References::Inlined,
    cycles: Cycles::None,
    ..GEMINI
};

/// The formats of a text that OpenAI and Anthropic both know.
const GEMINI_FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// The schema of an answer as the strict mode of OpenAI's two wires takes it.
///
/// A property that is not required becomes required. One that has a `default` is then always
/// written by the model; another may be null, which is how that mode has optional properties.
pub(in crate::provider) fn openai_strict(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    rewrite_for_subset(schema, &OPENAI_STRICT)
}

/// The schema of an answer as Anthropic takes it.
pub(in crate::provider) fn anthropic_output(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    rewrite_for_subset(schema, &ANTHROPIC_OUTPUT)
}

/// A schema, of a tool or an answer, as Gemini takes it in `parametersJsonSchema` and
/// `responseJsonSchema`.
pub(in crate::provider) fn gemini(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    rewrite_for_subset(schema, &GEMINI)
}

/// The schema of a tool's parameters as Ollama takes it.
pub(in crate::provider) fn ollama_parameters(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    let mut narrowed = rewrite_for_subset(schema, &OLLAMA_PARAMETERS)?;
    // A tool may say nothing of what it takes.
    let kind = ["type", "anyOf"].iter().find_map(|keyword| narrowed.get(keyword));
    match kind {
        Some(kind) if kind == "object" => Ok(narrowed),
        Some(_) => {
            Err(OLLAMA_PARAMETERS.refuse_schema("#", "parameters that are not always an object"))
        }
        None => {
            narrowed.to_mut()["type"] = json!("object");
            Ok(narrowed)
        }
    }
}
