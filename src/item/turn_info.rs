//! The metadata of a completed turn, stored on the turn's last item.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::usage::Usage;

/// The reason why the model ended a turn.
///
/// A stop reason can prevent tool calls from running, but never causes tool calls to run. Whether
/// the model requested tools is determined by the calls in the complete turn, not by the stop
/// reason. The provider's original stop reason is available in
/// [`Turn::raw_stop_reason`](crate::turn::Turn::raw_stop_reason).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The model finished its answer.
    Stop,
    /// The model requested tool calls.
    ToolCalls,
    /// The answer reached the output limit.
    MaxTokens,
    /// A content filter cut off the answer.
    ContentFilter,
    /// The model refused to answer.
    Refusal,
    /// The provider paused the turn. Sending the history again continues the turn.
    Pause,
    /// The context window is full.
    ContextWindow,
    /// The turn was [interrupted](crate::RunHandle::interrupt_turn) before the model had finished.
    /// Providers never report this reason.
    Interrupted,
    /// A stop reason that is unknown to this crate, exactly as received from the provider.
    Other(String),
}

impl StopReason {
    /// Returns the stop reason's name, as serialized in events.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::MaxTokens => "max_tokens",
            Self::ContentFilter => "content_filter",
            Self::Refusal => "refusal",
            Self::Pause => "pause",
            Self::ContextWindow => "context_window",
            Self::Interrupted => "interrupted",
            Self::Other(raw) => raw,
        }
    }
}

impl From<Cow<'_, str>> for StopReason {
    fn from(word: Cow<'_, str>) -> Self {
        match &*word {
            "stop" => Self::Stop,
            "tool_calls" => Self::ToolCalls,
            "max_tokens" => Self::MaxTokens,
            "content_filter" => Self::ContentFilter,
            "refusal" => Self::Refusal,
            "pause" => Self::Pause,
            "context_window" => Self::ContextWindow,
            "interrupted" => Self::Interrupted,
            _ => Self::Other(word.into_owned()),
        }
    }
}

impl Serialize for StopReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for StopReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer).map(Self::from)
    }
}

/// The metadata on the last item of a completed turn. The presence of the metadata shows that the
/// turn is complete. The metadata also records why the model stopped.
///
/// ```
/// use turnstream::History;
/// use turnstream::item::{Item, StopReason, TurnInfo};
///
/// // A history that was not written by a run, with a call that can be resumed.
/// let call = Item::tool_call("c1", "delete", r#"{"path":"notes.md"}"#);
/// let call = call.with_turn_info(TurnInfo::new(StopReason::ToolCalls));
/// let history = History::from_items("h", [Item::user("Delete my notes"), call]);
/// assert_eq!(history.unanswered_calls().len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnInfo {
    /// The turn's token usage.
    #[serde(default)]
    pub usage: Usage,
    /// The name of the model that answered, as reported by the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The response id assigned by the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Why the model ended the turn.
    pub stop_reason: StopReason,
}

impl TurnInfo {
    /// Creates turn metadata that contains only a stop reason. The token usage is zero.
    pub fn new(stop_reason: StopReason) -> Self {
        Self { usage: Usage::default(), model: None, response_id: None, stop_reason }
    }

    /// Sets the name of the model that answered.
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }
}
