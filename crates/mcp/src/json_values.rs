//! Limits the number of values in a message before a tree is built from it.

use turnstream::item::count_json_values;

/// The maximum number of JSON values in a message.
pub(crate) const MAX_JSON_VALUES: usize = 200_000;

/// Returns whether JSON may contain more than [`MAX_JSON_VALUES`] values.
pub(crate) fn has_too_many_values(json: &[u8]) -> bool {
    // Every value is at least one byte long, and is followed by a comma or a bracket.
    json.len() / 2 >= MAX_JSON_VALUES && count_json_values(json, MAX_JSON_VALUES) > MAX_JSON_VALUES
}
