//! Collects violations, and provides helpers for inspecting JSON values.

use std::fmt::Display;

use serde_json::Value;

/// The violations found in a request.
#[derive(Debug, Default)]
pub(super) struct Violations(Vec<String>);

impl Violations {
    pub(super) fn push(&mut self, what: impl Display) {
        self.0.push(what.to_string());
    }

    /// Adds a violation unless a condition holds, as in `bad.require(holds).or_push("the
    /// violation")`.
    pub(super) fn require(&mut self, holds: bool) -> Condition<'_> {
        Condition(if holds { None } else { Some(self) })
    }

    pub(super) fn into_list(self) -> Vec<String> {
        self.0
    }
}

/// The list to add a violation to, or `None` if the condition holds.
#[must_use = "a condition does nothing without its violation"]
pub(super) struct Condition<'a>(Option<&'a mut Violations>);

impl Condition<'_> {
    pub(super) fn or_push(self, what: impl Display) {
        if let Some(bad) = self.0 {
            bad.push(what);
        }
    }
}

/// Returns an array's elements, or no elements for any other value.
pub(super) fn as_list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the elements of nested lists. Each element of the list `values` contains an inner list
/// in the field that `field` names. The elements of the inner lists are returned, each with its
/// indices in the outer and the inner list.
pub(super) fn nested_elements<'a>(
    values: &'a Value,
    field: &'a str,
) -> impl Iterator<Item = (usize, usize, &'a Value)> {
    let of = move |(at, value): (usize, &'a Value)| {
        as_list(&value[field]).iter().enumerate().map(move |(index, inner)| (at, index, inner))
    };
    as_list(values).iter().enumerate().flat_map(of)
}

/// Returns a JSON string's content, or an empty string for any other value.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns whether the value is a non-empty string.
pub(super) fn has_text(value: &Value) -> bool {
    !text(value).is_empty()
}

/// Returns an object's fields, leaving out fields that are null.
pub(super) fn set_fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null())
}

pub(super) fn is_given(body: &Value, field: &str) -> bool {
    body.get(field).is_some_and(|value| !value.is_null())
}

/// Returns whether a string consists of 1 to `longest` characters that are letters, digits, `_` or
/// `-`.
pub(super) fn is_plain_name(text: &str, longest: usize) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=longest).contains(&text.len()) && text.bytes().all(plain)
}

pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Returns the elements of `texts` that repeat an earlier element.
pub(super) fn repeated_values<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = std::collections::HashSet::new();
    texts.into_iter().filter(|text| !seen.insert(*text)).collect()
}
