//! What a wire takes, as plain data, and the keywords that there are.

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};

/// The keywords of a schema that is an object.
pub(super) type Schema = Map<String, Value>;

/// What a wire takes.
pub(super) struct SchemaSubset {
    /// Its name, for messages.
    pub(super) wire: &'static str,
    /// Whether a keyword that only narrows or annotates is taken with this value. What is not taken
    /// is told in the description.
    pub(super) keeps_keyword: fn(keyword: &str, value: &Value) -> bool,
    /// Which objects there are.
    pub(super) objects: ObjectForms,
    /// Which values an `enum` may have.
    pub(super) enum_values: EnumValues,
    /// Whether there are references.
    pub(super) references: ReferenceForms,
    /// Which references may lead back to where they stand.
    pub(super) recursion: RecursionForms,
    /// Whether the root must be an object, and neither of several kinds nor null.
    pub(super) requires_root_object: bool,
}

/// Which objects a wire knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ObjectForms {
    /// Of any fields, with or without a schema for them.
    Open,
    /// With the named properties and no more.
    Closed,
    /// Closed, and every property is required.
    AllRequired,
}

/// Which values a wire takes in an `enum`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum EnumValues {
    /// Anything but objects and arrays.
    Scalars,
    /// Strings and numbers; it has no `const`.
    StringsAndNumbers,
}

/// Whether a wire knows references.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ReferenceForms {
    /// Those to definitions of the same schema.
    Kept,
    /// None: what they lead to stands in their place. A schema that leads back to itself has no end
    /// then, and is refused.
    Inlined,
}

/// Which recursion a wire takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RecursionForms {
    /// Any.
    Any,
    /// Only by way of a property that is not required.
    Optional,
    /// None.
    None,
}

impl SchemaSubset {
    /// Whether an object may have other fields than those it names.
    pub(super) fn allows_open_objects(&self) -> bool {
        self.objects == ObjectForms::Open
    }

    /// The error for a place in a schema.
    pub(super) fn unsupported_error(&self, at: &str, what: &str) -> Error {
        let message = format!("a schema for {} cannot have {what} (at `{at}`)", self.wire);
        Error::new(ErrorKind::Unsupported, message).with_parameter(at)
    }
}

/// What a keyword is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeywordKind {
    /// It gives the shape.
    Structural,
    /// It narrows what fits and does nothing else: without it more fits.
    Narrowing,
    /// It decides on the shape by a condition.
    Condition,
    /// It says nothing about what fits: words about it, and what is not known.
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

/// Keywords that say what fits, as opposed to words about it.
pub(super) fn is_structural(keyword: &str) -> bool {
    KeywordKind::of_keyword(keyword) != KeywordKind::Annotation
}

/// Whether a string value is one of `words`.
pub(super) fn is_string_in(value: &Value, words: &[&str]) -> bool {
    value.as_str().is_some_and(|value| words.contains(&value))
}

/// Whether a regular expression does without what a grammar cannot follow: looking around, going
/// back, word boundaries.
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
