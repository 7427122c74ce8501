//! The subsets of JSON Schema that the wires accept, according to their vendors' documentation.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::rewrite::rewrite_for_subset;
use super::subset::{
    EnumValues, ObjectForms, RecursionForms, ReferenceForms, SchemaSubset, is_regular_pattern,
    is_string_in,
};
use crate::error::Error;
use crate::item::RawJson;

/// The schema subset that OpenAI's two wires accept in strict mode.
///
/// "`additionalProperties: false` must always be set in objects", "all fields must be required",
/// "the root level object of a schema must be an object, and not use `anyOf`". Recursion with
/// `$defs` and `#` is supported.
/// <https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas>
const OPENAI_STRICT: SchemaSubset = SchemaSubset {
    wire: "OpenAI's strict mode",
    keeps_keyword: |keyword, value| match keyword {
        "title" | "multipleOf" | "minimum" | "maximum" | "exclusiveMinimum"
        | "exclusiveMaximum" | "minItems" | "maxItems" => true,
        "pattern" => is_regular_pattern(value),
        "format" => is_string_in(value, STRING_FORMATS),
        _ => false,
    },
    objects: ObjectForms::AllRequired,
    enum_values: EnumValues::Scalars,
    references: ReferenceForms::Kept,
    recursion: RecursionForms::Any,
    requires_root_object: true,
};

/// The schema subset that Anthropic accepts for structured outputs.
///
/// Not supported: "recursive schemas", "numerical constraints", "string constraints", "array
/// constraints beyond `minItems` of 0 or 1", "`additionalProperties` set to anything other than
/// `false`".
/// <https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations>
const ANTHROPIC_OUTPUT: SchemaSubset = SchemaSubset {
    wire: "Anthropic",
    keeps_keyword: |keyword, value| match keyword {
        "title" | "default" => true,
        "pattern" => is_regular_pattern(value),
        "format" => *value == "uri" || is_string_in(value, STRING_FORMATS),
        "minItems" => matches!(value.as_u64(), Some(0 | 1)),
        _ => false,
    },
    objects: ObjectForms::Closed,
    recursion: RecursionForms::None,
    requires_root_object: false,
    ..OPENAI_STRICT
};

/// The schema subset that Gemini accepts in `parametersJsonSchema` and `responseJsonSchema`.
///
/// "Only the following properties are supported: `$id`, `$defs`, `$ref`, `$anchor`, `type`,
/// `format`, `title`, `description`, `enum` (for strings and numbers), `items`, `prefixItems`,
/// `minItems`, `maxItems`, `minimum`, `maximum`, `anyOf`, `oneOf` (interpreted the same as `anyOf`),
/// `properties`, `additionalProperties`, `required`. […] Cyclic references are unrolled to a limited
/// degree and, as such, may only be used within non-required properties. […] If `$ref` is set on a
/// sub-schema, no other properties, except for those starting as a `$`, may be set."
/// <https://ai.google.dev/api/generate-content#FIELDS.response_json_schema>
///
/// The older `parameters` and `responseSchema` fields support fewer keywords: a subset of `OpenAPI`
/// schemas.
const GEMINI: SchemaSubset = SchemaSubset {
    wire: "Gemini",
    keeps_keyword: |keyword, value| match keyword {
        "title" | "minItems" | "maxItems" | "minimum" | "maximum" | "propertyOrdering" => true,
        "format" => is_string_in(value, &["date-time", "date", "time"]),
        _ => false,
    },
    objects: ObjectForms::Open,
    enum_values: EnumValues::StringsAndNumbers,
    references: ReferenceForms::Kept,
    recursion: RecursionForms::Optional,
    requires_root_object: false,
};

/// The schema subset that Ollama accepts for a tool's parameters.
///
/// The server deserializes the schema into its own type, `api.ToolFunctionParameters`. The server
/// drops every keyword that this type does not define, including `$ref`. The server rejects values
/// of the wrong type, such as a schema that is `true`, or a root with several types.
/// <https://github.com/ollama/ollama/blob/main/api/types.go>
const OLLAMA_PARAMETERS: SchemaSubset = SchemaSubset {
    wire: "Ollama",
    keeps_keyword: |_, _| false,
    references: ReferenceForms::Inlined,
    recursion: RecursionForms::None,
    ..GEMINI
};

/// The string formats supported by both OpenAI and Anthropic.
const STRING_FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Rewrites the schema of a model's answer for strict mode on OpenAI's two wires.
///
/// Optional properties become required. An optional property without a `default` also becomes
/// nullable, which is how strict mode expresses optional properties. For a property with a
/// `default`, the model always writes a value.
pub(in crate::provider) fn to_openai_strict_schema(
    schema: &Value,
) -> Result<Cow<'_, Value>, Error> {
    rewrite_for_subset(schema, &OPENAI_STRICT)
}

/// Rewrites a schema that is stored as JSON text. Returns the borrowed text if nothing changes.
pub(in crate::provider) fn rewrite_json(
    schema: &RawJson,
    rewrite: fn(&Value) -> Result<Cow<'_, Value>, Error>,
) -> Result<Cow<'_, RawJson>, Error> {
    Ok(match rewrite(&schema.to_value())? {
        Cow::Borrowed(_) => Cow::Borrowed(schema),
        Cow::Owned(rewritten) => Cow::Owned(rewritten.into()),
    })
}

/// Rewrites the schema of a model's answer for Anthropic's structured outputs.
pub(in crate::provider) fn to_anthropic_output_schema(
    schema: &Value,
) -> Result<Cow<'_, Value>, Error> {
    rewrite_for_subset(schema, &ANTHROPIC_OUTPUT)
}

/// Rewrites the schema of a tool or of a model's answer for Gemini's `parametersJsonSchema` and
/// `responseJsonSchema` fields.
pub(in crate::provider) fn to_gemini_schema(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    rewrite_for_subset(schema, &GEMINI)
}

/// Rewrites the schema of a tool's parameters for Ollama.
pub(in crate::provider) fn to_ollama_parameters_schema(
    schema: &Value,
) -> Result<Cow<'_, Value>, Error> {
    let mut narrowed = rewrite_for_subset(schema, &OLLAMA_PARAMETERS)?;
    // A tool's schema may be empty.
    let kind = ["type", "anyOf"].iter().find_map(|keyword| narrowed.get(keyword));
    match kind {
        Some(kind) if kind == "object" => Ok(narrowed),
        Some(_) => {
            Err(OLLAMA_PARAMETERS
                .unsupported_error("#", "parameters that are not always an object"))
        }
        None => {
            narrowed.to_mut()["type"] = json!("object");
            Ok(narrowed)
        }
    }
}
