//! What a tool puts on record besides its words.

use serde::{Deserialize, Serialize};

use crate::item::Json;

/// What a call did to the world, and what it can prove. The model does not see it; stores, traces
/// and the outcome do.
///
/// ```
/// use turnstream::item::{Report, SideEffect};
///
/// let report = Report {
///     side_effects: vec![SideEffect::changed("src/lib.rs")],
///     ..Report::default()
/// };
/// let json = serde_json::to_string(&report)?;
/// assert_eq!(json, r#"{"side_effects":[{"kind":"changed","target":"src/lib.rs"}]}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// What is different in the world, in the order in which it was told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub side_effects: Vec<SideEffect>,
    /// What proves something: a command and its exit code, a diff. Collected in the outcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Json>,
}

/// Something that a call changed outside of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SideEffect {
    /// What was done: `changed`, `created`, `deleted`, `sent`, or a word of your own.
    pub kind: String,
    /// What it was done to: a path, an id, an address.
    pub target: String,
}

impl Report {
    /// Whether nothing was put on record.
    pub fn is_empty(&self) -> bool {
        self.side_effects.is_empty() && self.evidence.is_empty()
    }
}

impl SideEffect {
    /// Something that was there is different.
    pub fn changed(target: impl Into<String>) -> Self {
        Self { kind: "changed".to_owned(), target: target.into() }
    }

    /// Something is there that was not.
    pub fn created(target: impl Into<String>) -> Self {
        Self { kind: "created".to_owned(), target: target.into() }
    }
}
