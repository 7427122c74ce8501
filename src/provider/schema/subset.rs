//! Describes the subset of JSON Schema that a wire accepts, and classifies keywords.

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};

/// The keywords of a schema, which is a JSON object.
pub(super) type Schema = Map<String, Value>;

/// The subset of JSON Schema that a wire accepts.
pub(super) struct SchemaSubset {
    /// The name of the wire, for error messages.
    pub(super) wire: &'static str,
    /// Returns whether the wire accepts a narrowing or annotating keyword with this value. Keywords
    /// that the wire does not accept are moved into the description.
    pub(super) keeps_keyword: fn(keyword: &str, value: &Value) -> bool,
    /// The supported forms of objects.
    pub(super) objects: ObjectForms,
    /// The supported values of an `enum`.
    pub(super) enum_values: EnumValues,
    /// Whether references are supported.
    pub(super) references: ReferenceForms,
    /// The supported recursive references.
    pub(super) recursion: RecursionForms,
    /// Whether the root must be an object, without alternatives or null.
    pub(super) requires_root_object: bool,
}

/// The forms of objects that a wire supports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ObjectForms {
    /// The wire supports any fields, with or without a schema for the field.
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
    /// The wire supports references to definitions of the same schema.
    Kept,
    /// The wire supports no references; each reference is replaced by its target. A recursive
    /// schema would expand forever, so it is rejected.
    Inlined,
}

/// The recursion that a wire supports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RecursionForms {
    /// The wire supports any recursion.
    Any,
    /// The wire supports only recursion through an optional property.
    Optional,
    /// The wire supports no recursion.
    None,
}

impl SchemaSubset {
    /// Returns whether an object may have fields that its schema does not name.
    pub(super) fn allows_open_objects(&self) -> bool {
        self.objects == ObjectForms::Open
    }

    /// Creates the error for a location in a schema that the wire cannot express.
    pub(super) fn unsupported_error(&self, at: &str, what: &str) -> Error {
        let message = format!("a schema for {} cannot have {what} (at `{at}`)", self.wire);
        Error::new(ErrorKind::Unsupported, message).with_parameter(at)
    }
}

/// The effect of a schema keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeywordKind {
    /// A keyword that determines the shape of a value.
    Structural,
    /// A keyword that only restricts the accepted values. Without the keyword, more values match.
    Narrowing,
    /// A keyword that determines the shape of a value by a condition.
    Condition,
    /// Annotations and unknown keywords, which do not affect which values match.
    Annotation,
}

/// The keyword for the fields of an object that have no schema of their own.
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

/// Returns whether a keyword affects which values match, and is not just an annotation.
pub(super) fn is_structural(keyword: &str) -> bool {
    KeywordKind::of_keyword(keyword) != KeywordKind::Annotation
}

/// Returns whether a value is a string that is in `words`.
pub(super) fn is_string_in(value: &Value, words: &[&str]) -> bool {
    value.as_str().is_some_and(|value| words.contains(&value))
}

/// Returns whether a regular expression has no features beyond regular grammars, such as
/// lookaround, backreferences and word boundaries.
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
