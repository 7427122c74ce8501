//! The side effects and evidence that a tool reports in addition to its result.

use serde::{Deserialize, Serialize};

use crate::item::RawJson;

/// The side effects of a call, and evidence of its work. The model never receives an effect report.
/// Stores, traces and the outcome of a run contain the reports.
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
    /// The evidence, for example a command with its exit code, or a diff. The outcome of the run
    /// collects all evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<RawJson>,
}

/// A change that a call made outside of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SideEffect {
    /// The kind of change: `changed`, `created`, `deleted`, `sent`, or a custom word.
    pub kind: String,
    /// The target of the change: a path, an id, an address.
    pub target: String,
}

/// A check that was run, with its result, in the usual format of evidence.
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
    /// The command, in a form that another person can run again.
    pub command: String,
    /// The exit code; `None` if a signal or a timeout ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The shortened error output of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_snippet: Option<String>,
}

impl Evidence {
    /// Creates evidence from a command and its exit code.
    pub fn from_command(command: impl Into<String>, exit_code: i32) -> Self {
        Self { command: command.into(), exit_code: Some(exit_code), stderr_snippet: None }
    }

    /// Sets the error output of the command. A snippet that consists only of white space is
    /// ignored.
    pub fn with_stderr(mut self, snippet: impl Into<String>) -> Self {
        let snippet = snippet.into();
        self.stderr_snippet = (!snippet.trim().is_empty()).then_some(snippet);
        self
    }

    /// Returns whether the check passed, which means that its exit code is 0.
    pub fn is_passing(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Reads evidence from its JSON. Returns `None` if the JSON has another form.
    pub fn from_json(json: &RawJson) -> Option<Self> {
        json.deserialize_as().ok()
    }
}

impl EffectReport {
    /// Returns whether the report has no side effects and no evidence.
    pub fn is_empty(&self) -> bool {
        self.side_effects.is_empty() && self.evidence.is_empty()
    }
}

impl SideEffect {
    /// Creates the record of a change to something that already existed.
    pub fn of_change(target: impl Into<String>) -> Self {
        Self { kind: "changed".to_owned(), target: target.into() }
    }

    /// Creates the record of something that was created.
    pub fn of_creation(target: impl Into<String>) -> Self {
        Self { kind: "created".to_owned(), target: target.into() }
    }
}
