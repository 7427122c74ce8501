//! The evidence policy, which defines what evidence a claim requires and what happens to a claim
//! without evidence.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use futures::{FutureExt, future};

use crate::agent::State;
use crate::agent::evidence::verdict::EvidenceRules;
use crate::agent::evidence::{EvidenceLog, EvidenceVerdict, UnprovenReason, strip_blocked_prefix};
use crate::agent::hook::{Hook, HookFuture, StopDecision};
use crate::item::{Evidence, RawJson};
use crate::turn::Turn;

const DEFAULT_INSTRUCTIONS: &str = "\
End only with evidence. You may say that you are done only if a check has passed since your last \
change: run it with a tool, in a later turn than the change, and name it in your answer. A failed \
check must pass before you end. If you cannot continue, answer with a first line `BLOCKED: ` and the \
smallest thing that is missing, for example a permission, a file or a decision.";

type BlockedDetector = dyn Fn(&Turn) -> Option<String> + Send + Sync;
type EvidenceParser = dyn Fn(&RawJson) -> Option<Evidence> + Send + Sync;

/// Defines what evidence must have been recorded when a model claims to be done. Cheap to clone.
///
/// [`Agent::with_evidence`](crate::Agent::with_evidence) describes what happens to a claim without
/// evidence. Every final text from the model counts as a claim, even "I could not do it", unless
/// the text states that the model is blocked.
#[derive(Clone)]
pub struct RequireEvidence {
    only_after_changes: bool,
    read_only_tools: Arc<[String]>,
    instructions: Arc<str>,
    blocked_detector: Arc<BlockedDetector>,
    evidence_parser: Arc<EvidenceParser>,
}

impl Default for RequireEvidence {
    fn default() -> Self {
        Self {
            only_after_changes: false,
            read_only_tools: Arc::default(),
            instructions: DEFAULT_INSTRUCTIONS.into(),
            blocked_detector: Arc::new(|turn| {
                strip_blocked_prefix(&turn.text()).map(str::to_owned)
            }),
            evidence_parser: Arc::new(Evidence::from_json),
        }
    }
}

impl RequireEvidence {
    /// Creates a policy that requires a passing check for every claim, even if the run changed
    /// nothing. Every successful run is therefore backed by a passing check.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires evidence only if the run changed something. A run that changed nothing may complete
    /// without a check, or despite failed checks.
    pub fn only_after_changes(mut self) -> Self {
        self.only_after_changes = true;
        self
    }

    /// Sets the names of tools that never change anything. If a call to such a tool is interrupted,
    /// times out or panics, it does not count as a change.
    pub fn with_read_only_tools<N: Into<String>>(
        mut self,
        tools: impl IntoIterator<Item = N>,
    ) -> Self {
        self.read_only_tools = tools.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the instructions about evidence, which are appended to the stable part of the system
    /// prompt. If `text` is empty, nothing is appended.
    pub fn with_instructions(mut self, text: impl Into<Arc<str>>) -> Self {
        self.instructions = text.into();
        self
    }

    /// Sets the function that detects whether the model is blocked. The function returns a
    /// description of what is missing, an empty string if the model does not say what is missing,
    /// or `None` if the model is not blocked. By default, if the turn's text starts with
    /// [`BLOCKED_PREFIX`](super::BLOCKED_PREFIX) in upper or lower case, the function returns the
    /// rest of the first line.
    ///
    /// The function runs within the poll in which the model stops, so it must return quickly. A
    /// panic in the function ends the run with a [`Hook`](crate::ErrorKind::Hook) error.
    ///
    /// ```
    /// use turnstream::agent::evidence::RequireEvidence;
    ///
    /// // The system prompt defines this prefix.
    /// let policy = RequireEvidence::new().with_blocked_detector(|turn| {
    ///     turn.text().strip_prefix("BLOCKIERT:").map(|missing| missing.trim().to_owned())
    /// });
    /// # drop(policy);
    /// ```
    pub fn with_blocked_detector(
        mut self,
        blocked: impl Fn(&Turn) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.blocked_detector = Arc::new(blocked);
        self
    }

    /// Sets the function that parses recorded evidence as a check. If the function returns `None`,
    /// the evidence does not count as a check. The default function is [`Evidence::from_json`]. The
    /// function runs within a poll of the run, so it must return quickly. A panic in the function
    /// ends the run with a [`Hook`](crate::ErrorKind::Hook) error.
    ///
    /// ```
    /// use turnstream::agent::evidence::RequireEvidence;
    /// use turnstream::item::Evidence;
    ///
    /// // A reviewed diff counts as a check as well.
    /// let policy = RequireEvidence::new().with_evidence_parser(|json| {
    ///     let reviewed = || json.to_value()["reviewed"].as_str().map(str::to_owned);
    ///     Evidence::from_json(json)
    ///         .or_else(|| Some(Evidence::from_command(format!("review of {}", reviewed()?), 0)))
    /// });
    /// # drop(policy);
    /// ```
    pub fn with_evidence_parser(
        mut self,
        read: impl Fn(&RawJson) -> Option<Evidence> + Send + Sync + 'static,
    ) -> Self {
        self.evidence_parser = Arc::new(read);
        self
    }

    /// Decides what the log's results prove under this policy; see [`EvidenceLog::verdict`].
    pub fn verdict(&self, standing: &EvidenceLog) -> EvidenceVerdict {
        self.with_rules(|rules| standing.verdict_with_rules(rules))
    }

    /// Returns the instructions about evidence that are added to the system prompt.
    pub fn instructions(&self) -> &str {
        &self.instructions
    }

    /// If the turn's text says that the model is blocked, returns a description of what is missing.
    /// The description is empty if the text does not say what is missing. Returns `None` if the
    /// model is not blocked.
    pub(crate) fn blocked_reason(&self, turn: &Turn) -> Option<String> {
        (self.blocked_detector)(turn).map(|missing| missing.trim().to_owned())
    }

    /// Returns the names of the tools that never change anything.
    pub(in crate::agent) fn read_only_tools(&self) -> Arc<[String]> {
        Arc::clone(&self.read_only_tools)
    }

    fn unproven_reason(&self, standing: &EvidenceLog) -> Option<UnprovenReason> {
        let changed = self.with_rules(|rules| standing.has_changes(rules));
        match self.verdict(standing) {
            EvidenceVerdict::Proven(_) => None,
            EvidenceVerdict::NothingChanged | EvidenceVerdict::Unproven(_)
                if self.only_after_changes && !changed =>
            {
                None
            }
            EvidenceVerdict::NothingChanged => Some(UnprovenReason::default()),
            EvidenceVerdict::Unproven(missing) => Some(missing),
        }
    }

    fn with_rules<T>(&self, f: impl FnOnce(&EvidenceRules<'_>) -> T) -> T {
        let is_harmless = |tool: &str| self.read_only_tools.iter().any(|name| name == tool);
        f(&EvidenceRules {
            is_read_only_tool: &is_harmless,
            parse_evidence: &*self.evidence_parser,
        })
    }
}

/// Judges the model's claim each time the model stops.
impl Hook for RequireEvidence {
    fn name(&self) -> Cow<'_, str> {
        "the evidence policy".into()
    }

    fn give_up_reason(&self, _: &State, turn: &Turn) -> Option<String> {
        self.blocked_reason(turn).filter(|missing| !missing.is_empty())
    }

    fn judge_evidence(&self, state: &State) -> Option<EvidenceVerdict> {
        Some(self.verdict(&state.evidence.log))
    }

    fn before_stop<'a>(&'a self, state: &'a State, turn: &'a Turn) -> HookFuture<'a, StopDecision> {
        let decision = match self.blocked_reason(turn) {
            Some(missing) if !missing.is_empty() => StopDecision::Blocked(missing),
            Some(_) => StopDecision::RequireEvidence {
                text: blocked_prompt(),
                reason: NO_MISSING_ITEM_NAMED.to_owned(),
            },
            None => match self.unproven_reason(&state.evidence.log) {
                None => StopDecision::Allow,
                Some(missing) => StopDecision::RequireEvidence {
                    text: unproven_prompt(&missing),
                    reason: missing.to_string(),
                },
            },
        };
        future::ready(Ok(decision)).boxed()
    }
}

const NO_MISSING_ITEM_NAMED: &str = "it says that it is blocked without naming what is missing";

fn unproven_prompt(missing: &UnprovenReason) -> String {
    format!(
        "You have stopped, but nothing proves that you are done: {missing}. Run a check that passes \
         and name it in your answer. If you cannot, answer with a first line `BLOCKED: ` and the \
         smallest thing that is missing."
    )
}

fn blocked_prompt() -> String {
    "You say that you are blocked, but not by what. Answer with a first line `BLOCKED: ` and the \
     smallest thing that is missing, or continue and end with a check that passes."
        .to_owned()
}

impl fmt::Debug for RequireEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequireEvidence")
            .field("only_after_changes", &self.only_after_changes)
            .field("read_only_tools", &self.read_only_tools)
            .finish_non_exhaustive()
    }
}
