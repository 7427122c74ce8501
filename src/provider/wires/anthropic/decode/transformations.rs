//! Changes that Anthropic made to a request before the model saw it.

use serde::Deserialize;

use crate::provider::wires::anthropic::passthrough::PROVIDER_NAME;
use crate::turn::Turn;

/// An entry of Anthropic's `input_transformations`: a change that Anthropic made to a request
/// before the model saw it, or a block that failed a check and was shown to the model unchanged,
/// <https://platform.claude.com/docs/en/build-with-claude/preserved-thinking>.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct InputTransformation {
    /// The kind of change, such as `thinking_dropped` if a thinking block was not shown to the
    /// model.
    #[serde(rename = "type")]
    pub kind: String,
    /// The path to the changed block in the request body, such as `messages.1.content.0`.
    #[serde(default)]
    pub path: String,
    /// The reason for the change, such as `prefix_binding_mismatch` if anything before the block
    /// has changed.
    #[serde(default)]
    pub reason: String,
}

/// Returns the changes that Anthropic made to this turn's request before the model saw it. The
/// changes are listed in the order in which the changed blocks appear in the request. The list is
/// empty for turns from other providers.
///
/// ```
/// use turnstream::TurnEvent;
/// use turnstream::provider::anthropic;
///
/// fn log(event: &TurnEvent) {
///     if let TurnEvent::TurnComplete { turn } = event {
///         for change in anthropic::input_transformations(turn) {
///             eprintln!("{}: {} ({})", change.path, change.kind, change.reason);
///         }
///     }
/// }
/// ```
pub fn input_transformations(turn: &Turn) -> Vec<InputTransformation> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Message {
        r#type: String,
        input_transformations: Vec<serde_json::Value>,
    }
    let own = turn.items().iter().filter_map(|item| item.provider_data.as_deref());
    let own = own.filter(|data| data.provider == PROVIDER_NAME);
    let messages = own.filter_map(|data| data.value.deserialize_as::<Message>().ok());
    let changes = messages.filter(|message| message.r#type == "message");
    let changes = changes.flat_map(|message| message.input_transformations);
    changes.filter_map(|change| serde_json::from_value(change).ok()).collect()
}
