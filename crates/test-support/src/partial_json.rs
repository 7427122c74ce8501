//! The relation between a value that has not ended and the complete value.

use serde_json::Value;

/// Returns whether `partial` may be shown while `whole` is read: each of its members is equal to
/// that of `whole`, but for the last one of each list and object, which begins like it. A number, a
/// boolean or `null` is never shown in part.
pub fn is_beginning_of(partial: &Value, whole: &Value) -> bool {
    match (partial, whole) {
        (Value::String(partial), Value::String(whole)) => whole.starts_with(partial.as_str()),
        (Value::Array(partial), Value::Array(whole)) => {
            let Some((last, ended)) = partial.split_last() else { return true };
            let count = ended.len();
            whole.starts_with(ended)
                && whole.get(count).is_some_and(|whole| is_beginning_of(last, whole))
        }
        (Value::Object(partial), Value::Object(whole)) => {
            let last = partial.len().saturating_sub(1);
            partial.iter().enumerate().all(|(index, (name, value))| match whole.get(name) {
                Some(whole) if index == last => is_beginning_of(value, whole),
                Some(whole) => value == whole,
                None => false,
            })
        }
        (partial, whole) => partial == whole,
    }
}
