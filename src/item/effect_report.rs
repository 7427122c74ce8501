//! The side effects and evidence that a tool reports in addition to its result.

use serde::{Deserialize, Serialize};

use crate::item::RawJson;

/// The side effects and evidence reported by a tool call. An effect report is included in stores,
/// traces and the run's outcome, but is never sent to the model.
///
/// ```
/// use turnstream::item::{EffectReport, SideEffect};
///
/// let report = EffectReport {
///     side_effects: vec![SideEffect::of_change("src/lib.rs")],
///     ..EffectReport::default()
/// };
/// let json = serde_json::to_string(&report)?;
/// assert_eq!(json, r#"{"side_effects":[{"kind":"changed","target":"src/lib.rs"}]}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EffectReport {
    /// The side effects, in the order in which they were reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub side_effects: Vec<SideEffect>,
    /// The evidence, such as a diff, or a command with its exit code. A run's outcome contains the
    /// evidence from all of the run's calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<RawJson>,
}

/// A change that a tool call made outside of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SideEffect {
    /// The kind of change: `changed`, `created`, `deleted`, `sent`, or a custom string.
    pub kind: String,
    /// The target of the change, such as a path, an id or an address.
    pub target: String,
}

/// The standard format for evidence: a check that was run, and its result.
///
/// ```
/// use turnstream::item::{Evidence, RawJson};
///
/// let passed = Evidence::from_command("cargo test", 0);
/// let json = RawJson::new(&passed)?;
/// assert_eq!(json.as_str(), r#"{"command":"cargo test","exit_code":0}"#);
/// assert_eq!(Evidence::from_json(&json), Some(passed));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The command, in a form in which it can be run again.
    pub command: String,
    /// The exit code; `None` if a signal or a timeout ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// A shortened form of the command's error output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_snippet: Option<String>,
}

impl Evidence {
    /// Creates evidence from a command and its exit code.
    pub fn from_command(command: impl Into<String>, exit_code: i32) -> Self {
        Self { command: command.into(), exit_code: Some(exit_code), stderr_snippet: None }
    }

    /// Sets the snippet of the command's error output. A snippet that consists only of whitespace
    /// is ignored.
    pub fn with_stderr(mut self, snippet: impl Into<String>) -> Self {
        let snippet = snippet.into();
        self.stderr_snippet = (!snippet.trim().is_empty()).then_some(snippet);
        self
    }

    /// Returns whether the check passed, that is, whether the exit code is 0.
    pub(crate) fn is_passing(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Parses evidence from JSON. Returns `None` if the JSON is not in the standard format.
    pub fn from_json(json: &RawJson) -> Option<Self> {
        json.deserialize_as().ok()
    }
}

impl EffectReport {
    /// Returns whether the report contains neither side effects nor evidence.
    pub(crate) fn is_empty(&self) -> bool {
        self.side_effects.is_empty() && self.evidence.is_empty()
    }
}

impl SideEffect {
    /// Creates a side effect of kind `changed`, for a change to something that already existed.
    pub fn of_change(target: impl Into<String>) -> Self {
        Self { kind: "changed".to_owned(), target: target.into() }
    }

    /// Creates a side effect of kind `created`, for something that was newly created.
    pub(crate) fn of_creation(target: impl Into<String>) -> Self {
        Self { kind: "created".to_owned(), target: target.into() }
    }
}
