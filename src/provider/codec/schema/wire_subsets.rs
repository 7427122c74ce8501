//! The subsets of JSON Schema that the wires accept, according to their vendors' documentation.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::parameters::{ParameterRules, normalize_output, normalize_parameters};
use super::refs;
use super::rewrite::rewrite_for_subset;
use super::subset::{
    EnumValues, ObjectForms, RecursionForms, ReferenceForms, SchemaSubset, is_regular_pattern,
    is_string_in,
};
use crate::error::Error;
use crate::item::RawJson;
use crate::request::ToolSpec;

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

/// The schema subset that Anthropic accepts for the parameters of a strict tool, which is the same
/// subset, except that all tools have an object at the root.
/// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/strict-tool-use>
const ANTHROPIC_STRICT: SchemaSubset =
    SchemaSubset { requires_root_object: true, ..ANTHROPIC_OUTPUT };

/// The schema subset that Gemini accepts in `parametersJsonSchema` and `responseJsonSchema`.
///
/// "Only the following properties are supported: `$id`, `$defs`, `$ref`, `$anchor`, `type`,
/// `format`, `title`, `description`, `enum` (for strings and numbers), `items`, `prefixItems`,
/// `minItems`, `maxItems`, `minimum`, `maximum`, `anyOf`, `oneOf` (interpreted the same as
/// `anyOf`), `properties`, `additionalProperties`, `required`. […] Cyclic references are unrolled
/// to a limited degree and, as such, may only be used within non-required properties. […] If `$ref`
/// is set on a sub-schema, no other properties, except for those starting as a `$`, may be set."
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

/// The parts of JSON Schema that OpenAI rejects in a tool's parameters outside of strict mode:
/// "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top
/// level", "object schema missing properties", "array schema missing items".
const OPENAI_PARAMETERS: ParameterRules = ParameterRules {
    requires_properties: true,
    requires_items: true,
    rejected_at_root: &["enum", "const", "not"],
    removes_unknown_formats: true,
};

/// The parts of JSON Schema that Anthropic rejects in a tool's parameters: alternatives at the
/// root, and schemas that are not valid in the newest draft of JSON Schema.
const ANTHROPIC_PARAMETERS: ParameterRules = ParameterRules {
    requires_properties: false,
    requires_items: false,
    rejected_at_root: &[],
    removes_unknown_formats: true,
};

/// The changes to a tool's parameters before they are rewritten for a subset of JSON Schema.
const SUBSET_PARAMETERS: ParameterRules =
    ParameterRules { removes_unknown_formats: false, ..ANTHROPIC_PARAMETERS };

/// The maximum number of references that are followed to find the type of a schema's root.
const MAX_ROOT_REFERENCES: usize = 16;

/// The string formats supported by both OpenAI and Anthropic.
const STRING_FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Rewrites the schema of a model's answer for OpenAI's two wires, and returns whether the schema
/// is for strict mode.
///
/// In strict mode, optional properties become required. An optional property without a `default`
/// also becomes nullable, which is how strict mode expresses optional properties. For a property
/// with a `default`, the model always writes a value. A schema that strict mode cannot express, for
/// example because it contains a map, is sent outside of strict mode.
///
/// # Errors
///
/// Returns an error if the schema is not usable outside of strict mode either, because its root is
/// not an object or because a reference in it points to nothing.
pub(in crate::provider) fn to_openai_output_schema(
    schema: &Value,
) -> Result<(Cow<'_, Value>, bool), Error> {
    match to_openai_strict_schema(schema) {
        Ok(schema) => Ok((schema, true)),
        Err(_) if is_object_root(schema) && !refs::has_unresolved_reference(schema) => {
            Ok((normalize_parameters(schema, &OPENAI_PARAMETERS), false))
        }
        Err(error) => Err(error),
    }
}

/// Rewrites the schema of a strict tool's parameters for OpenAI's two wires, or the schema of an
/// answer in strict mode.
///
/// # Errors
///
/// Returns an error if strict mode cannot express the schema.
pub(in crate::provider) fn to_openai_strict_schema(
    schema: &Value,
) -> Result<Cow<'_, Value>, Error> {
    rewrite_for_subset(schema, &OPENAI_STRICT)
}

/// Rewrites the schema of a model's answer for a server that accepts any JSON Schema.
pub(in crate::provider) fn to_plain_output_schema(schema: &Value) -> Cow<'_, Value> {
    normalize_output(schema, &ANTHROPIC_PARAMETERS)
}

/// Returns whether a schema's root, or the definition to which it refers, is an object without
/// alternatives.
fn is_object_root(schema: &Value) -> bool {
    let mut root = schema;
    for _ in 0..MAX_ROOT_REFERENCES {
        let Some(reference) = root.get("$ref").and_then(Value::as_str) else { break };
        let Some(target) = refs::resolve(schema, reference) else { return false };
        root = target;
    }
    let has_alternatives = root.get("anyOf").is_some() || root.get("oneOf").is_some();
    root.get("type") == Some(&json!("object")) && !has_alternatives
}

/// Returns an instruction to answer with JSON that matches a schema, for a wire that cannot express
/// the schema. Returns `None` if a reference in the schema points to nothing.
pub(in crate::provider) fn json_instruction(schema: &Value) -> Option<String> {
    (!refs::has_unresolved_reference(schema)).then(|| {
        format!(
            "Answer with a single JSON value, without any other text, that matches this JSON \
             Schema:\n{schema}"
        )
    })
}

/// A function that rewrites a schema for a wire.
pub(in crate::provider) type RewriteFn = fn(&Value) -> Result<Cow<'_, Value>, Error>;

/// Rewrites a schema that is stored as JSON text. Returns the borrowed text if nothing changes.
pub(in crate::provider) fn rewrite_json(
    schema: &RawJson,
    rewrite: RewriteFn,
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

/// Rewrites the schema of a tool's parameters for OpenAI's two wires, outside of strict mode.
#[expect(clippy::unnecessary_wraps, reason = "the wires share a function that rewrites a schema")]
pub(in crate::provider) fn to_openai_parameters_schema(
    schema: &Value,
) -> Result<Cow<'_, Value>, Error> {
    Ok(normalize_parameters(schema, &OPENAI_PARAMETERS))
}

/// Rewrites the schema of a tool's parameters for Anthropic.
#[expect(clippy::unnecessary_wraps, reason = "the wires share a function that rewrites a schema")]
pub(in crate::provider) fn to_anthropic_parameters_schema(
    schema: &Value,
) -> Result<Cow<'_, Value>, Error> {
    Ok(normalize_parameters(schema, &ANTHROPIC_PARAMETERS))
}

/// Rewrites the schema of a strict tool's parameters for Anthropic.
pub(in crate::provider) fn to_anthropic_strict_schema(
    schema: &Value,
) -> Result<Cow<'_, Value>, Error> {
    rewrite_for_subset(schema, &ANTHROPIC_STRICT)
}

/// Rewrites the parameters of a tool: with `strict` for a strict tool, and else with `relaxed`.
pub(in crate::provider) fn rewrite_parameters_of(
    tool: &ToolSpec,
    relaxed: RewriteFn,
    strict: RewriteFn,
) -> Result<Cow<'_, RawJson>, Error> {
    match tool.strict {
        false => rewrite_json(&tool.parameters, relaxed),
        true => rewrite_json(&tool.parameters, strict).map_err(|error| {
            error.with_context(&format!("the tool `{}` cannot be strict", tool.name))
        }),
    }
}

/// Rewrites the schema of a tool's parameters for Gemini's `parametersJsonSchema` field.
pub(in crate::provider) fn to_gemini_parameters_schema(
    schema: &Value,
) -> Result<Cow<'_, Value>, Error> {
    rewrite_parameters(schema, to_gemini_schema)
}

/// Rewrites the schema of a tool's parameters for a wire that accepts only a subset of JSON Schema.
fn rewrite_parameters(schema: &Value, rewrite: RewriteFn) -> Result<Cow<'_, Value>, Error> {
    match normalize_parameters(schema, &SUBSET_PARAMETERS) {
        Cow::Borrowed(schema) => rewrite(schema),
        Cow::Owned(schema) => rewrite(&schema).map(|schema| Cow::Owned(schema.into_owned())),
    }
}

/// Rewrites the schema of a model's answer for Gemini's `responseJsonSchema` field.
pub(in crate::provider) fn to_gemini_schema(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    rewrite_for_subset(schema, &GEMINI)
}

/// Rewrites the schema of a tool's parameters for Ollama.
pub(in crate::provider) fn to_ollama_parameters_schema(
    schema: &Value,
) -> Result<Cow<'_, Value>, Error> {
    rewrite_parameters(schema, to_ollama_object_schema)
}

fn to_ollama_object_schema(schema: &Value) -> Result<Cow<'_, Value>, Error> {
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
