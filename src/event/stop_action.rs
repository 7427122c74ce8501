//! The action by which a model ends its run.

use serde::{Deserialize, Serialize};

/// The action by which a model ends its run: a call to the tool [`Tool::stop`](crate::Tool::stop).
///
/// Text that ends a turn only implies that the work is done. A stop action states it: whether the
/// work succeeded, which check shows it, and which condition was met. The values are statements of
/// the model. An agent that [requires evidence](crate::Agent::with_evidence) compares them with the
/// recorded checks.
///
/// ```
/// use turnstream::event::{StopAction, StopActionReason};
///
/// let arguments = r#"{"reason":"blocked","missing":"a key for the staging server"}"#;
/// let action = StopAction::from_arguments(arguments)?;
/// assert_eq!(action.reason, StopActionReason::Blocked);
///
/// // A blocked model must say what is missing.
/// assert!(StopAction::from_arguments(r#"{"reason":"blocked"}"#).is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StopAction {
    /// Whether the work is done.
    pub reason: StopActionReason,
    /// The answer to the user, or a summary of the work. If the turn that contains the action has
    /// no text, this becomes the [text](crate::Outcome::text) of the outcome.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// The command of the check that shows that the work is done, such as `cargo test`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// The condition that was to end the work, and that is now met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_condition: Option<String>,
    /// The minimum that the model needs in order to continue, if it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Why a model ends its run with a [`StopAction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopActionReason {
    /// The work is done. The run ends as if the model had answered without a call.
    Success,
    /// The model cannot continue. The run ends with the reason
    /// [`blocked`](crate::event::EndReason::Blocked).
    Blocked,
}

impl StopAction {
    /// Parses the arguments of a call to the tool [`Tool::stop`](crate::Tool::stop). White space
    /// around texts is removed, and optional texts that are empty are treated as absent.
    ///
    /// # Errors
    ///
    /// Returns a message for the model if the reason is absent or unknown, if a field has another
    /// type, or if the reason is `blocked` but `missing` is absent.
    pub fn from_arguments(arguments: &str) -> Result<Self, String> {
        let mut action: Self =
            serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        action.summary.truncate(action.summary.trim_end().len());
        action.summary.drain(..action.summary.len() - action.summary.trim_start().len());
        for text in [&mut action.evidence, &mut action.stop_condition, &mut action.missing] {
            *text = text.take().map(|text| text.trim().to_owned()).filter(|it| !it.is_empty());
        }
        match (action.reason, &action.missing) {
            (StopActionReason::Blocked, None) => Err(
                "`missing` is absent: if you are blocked, name the smallest thing that is missing"
                    .to_owned(),
            ),
            (StopActionReason::Blocked | StopActionReason::Success, _) => Ok(action),
        }
    }

    /// Returns what is missing, if the model is blocked.
    pub(crate) fn missing_if_blocked(&self) -> Option<&str> {
        match self.reason {
            StopActionReason::Blocked => Some(self.missing.as_deref().unwrap_or_default()),
            StopActionReason::Success => None,
        }
    }
}
