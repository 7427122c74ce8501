//! The evidence policy, which defines what evidence a claim requires.

use std::sync::Arc;

use crate::agent::evidence::strip_blocked_prefix;
use crate::item::{Evidence, RawJson};
use crate::turn::Turn;

const DEFAULT_INSTRUCTIONS: &str = "\
End only with evidence. You may say that you are done only if a check has passed since your last \
change: run it with a tool, in a later turn than the change, and name it in your answer. A failed \
check must pass before you end. If you cannot continue, answer with a first line `BLOCKED: ` and the \
smallest thing that is missing, for example a permission, a file or a decision.";

type BlockedDetector = Arc<dyn Fn(&Turn) -> Option<String> + Send + Sync>;

type EvidenceParser = Arc<dyn Fn(&RawJson) -> Option<Evidence> + Send + Sync>;

/// Defines what evidence must have been recorded when a model claims to be done.
///
/// [`Agent::with_evidence`](crate::Agent::with_evidence) describes what happens to a claim without
/// evidence. Every final text from the model counts as a claim, even "I could not do it", unless
/// the text states that the model is blocked.
///
/// The functions run within a poll of the run, so they must return quickly. A panic in a function
/// ends the run with a [`Hook`](crate::ErrorKind::Hook) error.
#[derive(Clone)]
pub struct RequireEvidence {
    /// Whether evidence is required only if the run changed something. If `true`, a run that
    /// changed nothing may complete without a check, or despite failed checks. The default is
    /// `false`: every claim requires a passing check, so that every successful run is backed by
    /// one.
    pub only_after_changes: bool,
    /// The names of tools that never change anything. If a call to such a tool is interrupted,
    /// times out or panics, it does not count as a change.
    pub read_only_tools: Vec<String>,
    /// The instructions about evidence, which are appended to the stable part of the system prompt.
    /// If the text is empty, nothing is appended.
    pub instructions: String,
    /// Detects whether the model is blocked. The function returns a description of what is missing,
    /// an empty string if the model does not say what is missing, or `None` if the model is not
    /// blocked. By default, if the turn's text starts with `BLOCKED:` in upper or lower case, the
    /// function returns the rest of the first line.
    pub blocked_detector: BlockedDetector,
    /// Parses recorded evidence as a check. If the function returns `None`, the evidence does not
    /// count as a check. The default function is [`Evidence::from_json`].
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use turnstream::agent::evidence::RequireEvidence;
    /// use turnstream::item::Evidence;
    ///
    /// // A reviewed diff counts as a check as well.
    /// let mut policy = RequireEvidence::new();
    /// policy.evidence_parser = Arc::new(|json| {
    ///     let reviewed = || json.to_value()["reviewed"].as_str().map(str::to_owned);
    ///     Evidence::from_json(json)
    ///         .or_else(|| Some(Evidence::from_command(format!("review of {}", reviewed()?), 0)))
    /// });
    /// ```
    pub evidence_parser: EvidenceParser,
}

impl_debug!(RequireEvidence(it), read_only_tools = it.read_only_tools);

impl Default for RequireEvidence {
    fn default() -> Self {
        Self {
            only_after_changes: false,
            read_only_tools: Vec::new(),
            instructions: DEFAULT_INSTRUCTIONS.to_owned(),
            blocked_detector: Arc::new(|turn| {
                strip_blocked_prefix(&turn.text()).map(str::to_owned)
            }),
            evidence_parser: Arc::new(Evidence::from_json),
        }
    }
}

impl RequireEvidence {
    /// Creates a policy that requires a passing check for every claim, even if the run changed
    /// nothing.
    pub fn new() -> Self {
        Self::default()
    }
}
