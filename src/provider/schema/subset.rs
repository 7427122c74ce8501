//! What a wire takes, as plain data, and the keywords that there are.

use serde_json::Value;

use crate::error::{Error, ErrorKind};

/// What a wire takes.
pub(super) struct Subset {
    /// Its name, for messages.
    pub(super) wire: &'static str,
    /// Whether a keyword that only narrows or annotates is taken with this value. What is not taken
    /// is told in the description.
    pub(super) keeps: fn(keyword: &str, value: &Value) -> bool,
    /// Which objects there are.
    pub(super) objects: Objects,
    /// Which values an `enum` may have.
    pub(super) values: Values,
    /// Whether there are references.
    pub(super) references: References,
    /// Which references may lead back to where they stand.
    pub(super) cycles: Cycles,
    /// Whether the root must be an object, and neither of several kinds nor null.
    pub(super) object_at_root: bool,
}

/// Which objects a wire knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Objects {
    /// Of any fields, with or without a schema for them.
    Open,
    /// With the named properties and no more.
    Closed,
    /// Closed, and every property is required.
    AllRequired,
}

/// Which values a wire takes in an `enum`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Values {
    /// Anything but objects and arrays.
    Simple,
    /// Strings and numbers; it has no `const`.
    TextAndNumbers,
}

/// Whether a wire knows references.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum References {
    /// Those to definitions of the same schema.
    Kept,
    /// None: what they lead to stands in their place. A schema that leads back to itself has no end
    /// then, and is refused.
    WrittenOut,
}

/// Which recursion a wire takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cycles {
    /// Any.
    Any,
    /// Only by way of a property that is not required.
    Optional,
    /// None.
    None,
}

impl Subset {
    /// Whether an object may have other fields than those it names.
    pub(super) fn is_open(&self) -> bool {
        self.objects == Objects::Open
    }

    /// The error for a place in a schema.
    pub(super) fn refuse(&self, at: &str, what: &str) -> Error {
        let message = format!("a schema for {} cannot have {what} (at `{at}`)", self.wire);
        Error::new(ErrorKind::Unsupported, message).with_parameter(at)
    }
}

/// Keywords that narrow what fits and nothing else: without them more fits.
pub(super) fn narrows(keyword: &str) -> bool {
    matches!(
        keyword,
        "minimum"
            | "maximum"
            | "exclusiveMinimum"
            | "exclusiveMaximum"
            | "multipleOf"
            | "minLength"
            | "maxLength"
            | "pattern"
            | "format"
            | "minItems"
            | "maxItems"
            | "uniqueItems"
            | "contains"
            | "minContains"
            | "maxContains"
            | "minProperties"
            | "maxProperties"
            | "propertyNames"
            | "dependentRequired"
            | "contentEncoding"
            | "contentMediaType"
    )
}

/// Keywords that decide on the shape by a condition.
pub(super) fn is_conditional(keyword: &str) -> bool {
    matches!(
        keyword,
        "not" | "if" | "then" | "else" | "dependentSchemas" | "unevaluatedItems" | "$dynamicRef"
    )
}

/// Keywords that say what fits, as opposed to words about it.
pub(super) fn is_structural(keyword: &str) -> bool {
    narrows(keyword)
        || is_conditional(keyword)
        || matches!(
            keyword,
            "type"
                | "enum"
                | "const"
                | "properties"
                | "required"
                | "additionalProperties"
                | "patternProperties"
                | "items"
                | "prefixItems"
                | "anyOf"
                | "oneOf"
                | "allOf"
                | "$ref"
                | "nullable"
        )
}

/// Whether a string value is one of `words`.
pub(super) fn is_one_of(value: &Value, words: &[&str]) -> bool {
    value.as_str().is_some_and(|value| words.contains(&value))
}

/// Whether a regular expression does without what a grammar cannot follow: looking around, going
/// back, word boundaries.
pub(super) fn is_regular(pattern: &Value) -> bool {
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
