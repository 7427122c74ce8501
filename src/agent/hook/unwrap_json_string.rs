//! A hook that repairs double-encoded arguments.

use serde::de::IgnoredAny;

use crate::agent::hook::{Hook, repair_arguments};

/// Creates a hook that repairs arguments that consist of a JSON object encoded as a JSON string,
/// once or several times: `"{\"n\":1}"` becomes `{"n":1}`. Some models and gateways encode
/// arguments twice.
///
/// All other arguments, such as other strings, arrays, and objects with string fields, are left
/// unchanged.
///
/// ```
/// use turnstream::agent::State;
/// use turnstream::agent::hook::{self, Hook};
/// use turnstream::item::{History, ToolCall};
///
/// let unwrapping = hook::unwrap_json_string();
/// let state = State::new(History::empty("h"));
/// let mut call = ToolCall {
///     call_id: "c1".into(),
///     name: "add".into(),
///     arguments: r#""{\"n\":1}""#.into(),
/// };
/// assert_eq!(unwrapping.repair_arguments(&state, &call, "not a JSON object").unwrap(), r#"{"n":1}"#);
///
/// call.arguments = r#""n is 1""#.into();
/// assert_eq!(unwrapping.repair_arguments(&state, &call, "not a JSON object"), None);
/// ```
pub fn unwrap_json_string() -> impl Hook + 'static {
    repair_arguments(|_, call, _| unwrap_nested_strings(&call.arguments))
}

fn unwrap_nested_strings(arguments: &str) -> Option<String> {
    let mut inner: String = serde_json::from_str(arguments).ok()?;
    // The loop terminates, since each decoded string is shorter than its encoding.
    while let Ok(deeper) = serde_json::from_str(&inner) {
        inner = deeper;
    }
    let is_object = inner.trim_start().starts_with('{');
    (is_object && serde_json::from_str::<IgnoredAny>(&inner).is_ok()).then_some(inner)
}
