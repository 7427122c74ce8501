//! Describes the subset of JSON Schema that a wire accepts, and classifies keywords.

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};

/// A schema as a JSON object. The fields of the object are the schema's keywords.
pub(super) type Schema = Map<String, Value>;

/// The subset of JSON Schema that a wire accepts.
pub(super) struct SchemaSubset {
    /// The name of the wire, for error messages.
    pub(super) wire: &'static str,
    /// Returns whether the wire accepts this value for a keyword that narrows or annotates values.
    /// Keywords that the wire does not accept are moved into the description.
    pub(super) keeps_keyword: fn(keyword: &str, value: &Value) -> bool,
    /// The forms of object schemas that the wire supports.
    pub(super) objects: ObjectForms,
    /// The values that the wire supports in an `enum`.
    pub(super) enum_values: EnumValues,
    /// The kinds of references that the wire supports.
    pub(super) references: ReferenceForms,
    /// The recursive references that the wire supports.
    pub(super) recursion: RecursionForms,
    /// Whether the root schema must describe an object, without alternatives or null.
    pub(super) requires_root_object: bool,
}

/// The forms of object schemas that a wire supports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ObjectForms {
    /// The wire supports any fields, including fields without a schema.
    Open,
    /// The wire supports only the named properties.
    Closed,
    /// The wire supports only the named properties, all of which are required.
    AllRequired,
}

/// The values that a wire supports in an `enum`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum EnumValues {
    /// The wire supports any values except objects and arrays.
    Scalars,
    /// The wire supports strings and numbers, but not `const`.
    StringsAndNumbers,
}

/// The references that a wire supports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ReferenceForms {
    /// The wire supports references to definitions in the same schema.
    Kept,
    /// The wire does not support references; each reference is replaced with its target. Recursive
    /// schemas are rejected, because they would expand forever.
    Inlined,
}

/// The kinds of recursive references that a wire supports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RecursionForms {
    /// The wire supports any recursion.
    Any,
    /// The wire supports only recursion through an optional property.
    Optional,
    /// The wire does not support recursion.
    None,
}

impl SchemaSubset {
    /// Returns whether the wire supports objects with fields that are not named in the schema.
    pub(super) fn allows_open_objects(&self) -> bool {
        self.objects == ObjectForms::Open
    }

    /// Creates the error for a location in a schema that the wire cannot express.
    pub(super) fn unsupported_error(&self, at: &str, what: &str) -> Error {
        let message = format!("a schema for {} cannot have {what} (at `{at}`)", self.wire);
        Error::new(ErrorKind::Unsupported, message).with_parameter(at)
    }
}

/// Classifies a schema keyword by its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeywordKind {
    /// A keyword that determines the shape of a value.
    Structural,
    /// A keyword that only restricts the accepted values: without the keyword, more values match.
    Narrowing,
    /// A keyword that determines the shape of a value depending on a condition.
    Condition,
    /// An annotation or an unknown keyword, which does not affect which values match.
    Annotation,
}

/// The keyword that applies to those fields of an object that have no schema of their own.
const ADDITIONAL_PROPERTIES: &str = "additionalProperties";

impl KeywordKind {
    pub(super) fn of_keyword(keyword: &str) -> Self {
        match keyword {
            "type"
            | "enum"
            | "const"
            | "properties"
            | "required"
            | ADDITIONAL_PROPERTIES
            | "patternProperties"
            | "items"
            | "prefixItems"
            | "anyOf"
            | "oneOf"
            | "allOf"
            | "$ref"
            | "nullable" => Self::Structural,
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf"
            | "minLength" | "maxLength" | "pattern" | "format" | "minItems" | "maxItems"
            | "uniqueItems" | "contains" | "minContains" | "maxContains" | "minProperties"
            | "maxProperties" | "propertyNames" | "dependentRequired" | "contentEncoding"
            | "contentMediaType" => Self::Narrowing,
            "not" | "if" | "then" | "else" | "dependentSchemas" | "unevaluatedItems"
            | "$dynamicRef" => Self::Condition,
            _ => Self::Annotation,
        }
    }
}

/// Returns whether a keyword affects which values match, that is, whether it is not just an
/// annotation.
pub(super) fn is_structural(keyword: &str) -> bool {
    KeywordKind::of_keyword(keyword) != KeywordKind::Annotation
}

/// Returns whether a value is one of the strings in `words`.
pub(super) fn is_string_in(value: &Value, description: &[&str]) -> bool {
    value.as_str().is_some_and(|value| description.contains(&value))
}

/// Returns whether a regular expression uses only features of regular grammars, which exclude, for
/// example, lookaround, backreferences and word boundaries.
pub(super) fn is_regular_pattern(pattern: &Value) -> bool {
    let Some(pattern) = pattern.as_str() else { return false };
    let mut escaped = false;
    for c in pattern.chars() {
        if escaped && matches!(c, '1'..='9' | 'b' | 'B' | 'k') {
            return false;
        }
        escaped = c == '\\' && !escaped;
    }
    !["(?=", "(?!", "(?<"].iter().any(|around| pattern.contains(around))
}
