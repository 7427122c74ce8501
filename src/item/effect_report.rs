//! What a tool puts on record besides its words.

use serde::{Deserialize, Serialize};

use crate::item::RawJson;

/// What a call did to the world, and what it can prove. The model does not see it; stores, traces
/// and the outcome do.
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
    /// What is different in the world, in the order in which it was told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub side_effects: Vec<SideEffect>,
    /// What proves something: a command and its exit code, a diff. Collected in the outcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<RawJson>,
}

/// Something that a call changed outside of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SideEffect {
    /// What was done: `changed`, `created`, `deleted`, `sent`, or a word of your own.
    pub kind: String,
    /// What it was done to: a path, an id, an address.
    pub target: String,
}

/// A check that was run and what came of it: the usual form of what is put on record as evidence.
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
    /// What was run, as somebody else could run it again.
    pub command: String,
    /// What it ended with; `None` if a signal or a timeout ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What it complained of, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_snippet: Option<String>,
}

impl Evidence {
    /// A command and its exit code.
    pub fn from_command(command: impl Into<String>, exit_code: i32) -> Self {
        Self { command: command.into(), exit_code: Some(exit_code), stderr_snippet: None }
    }

    /// The same with what the command complained of. Nothing but white space is left out.
    pub fn with_stderr(mut self, snippet: impl Into<String>) -> Self {
        let snippet = snippet.into();
        self.stderr_snippet = (!snippet.trim().is_empty()).then_some(snippet);
        self
    }

    /// Whether the check passed: it ended with 0.
    pub fn is_passing(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Reads what was put on record. `None` if it has another form.
    pub fn from_json(json: &RawJson) -> Option<Self> {
        json.deserialize_as().ok()
    }
}

impl EffectReport {
    /// Whether nothing was put on record.
    pub fn is_empty(&self) -> bool {
        self.side_effects.is_empty() && self.evidence.is_empty()
    }
}

impl SideEffect {
    /// Something that was there is different.
    pub fn of_change(target: impl Into<String>) -> Self {
        Self { kind: "changed".to_owned(), target: target.into() }
    }

    /// Something is there that was not.
    pub fn of_creation(target: impl Into<String>) -> Self {
        Self { kind: "created".to_owned(), target: target.into() }
    }
}
