//! The evidence policy, which defines what evidence a claim requires and what happens to a claim
//! without evidence.

use std::borrow::Cow;

use futures::{FutureExt, future};

use crate::agent::State;
use crate::agent::evidence::{EvidenceLog, EvidenceVerdict, UnprovenReason, strip_blocked_prefix};
use crate::agent::hook::{Hook, HookFuture, StopDecision};
use crate::item::{Evidence, RawJson};
use crate::turn::Turn;

const DEFAULT_INSTRUCTIONS: &str = "\
End only with evidence. You may say that you are done only if a check has passed since your last \
change: run it with a tool, in a later turn than the change, and name it in your answer. A failed \
check must pass before you end. If you cannot continue, answer with a first line `BLOCKED: ` and the \
smallest thing that is missing, for example a permission, a file or a decision.";

/// Defines what evidence must have been recorded when a model claims to be done.
///
/// [`Agent::with_evidence`](crate::Agent::with_evidence) describes what happens to a claim without
/// evidence. Every final text from the model counts as a claim, even "I could not do it", unless
/// the text states that the model is blocked.
///
/// The functions run within a poll of the run, so they must return quickly. A panic in a function
/// ends the run with a [`Hook`](crate::ErrorKind::Hook) error.
#[derive(Clone, Debug)]
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
    /// blocked. By default, if the turn's text starts with
    /// [`BLOCKED_PREFIX`](super::BLOCKED_PREFIX) in upper or lower case, the function returns the
    /// rest of the first line.
    pub blocked_detector: fn(&Turn) -> Option<String>,
    /// Parses recorded evidence as a check. If the function returns `None`, the evidence does not
    /// count as a check. The default function is [`Evidence::from_json`].
    ///
    /// ```
    /// use turnstream::agent::evidence::RequireEvidence;
    /// use turnstream::item::Evidence;
    ///
    /// // A reviewed diff counts as a check as well.
    /// let mut policy = RequireEvidence::new();
    /// policy.evidence_parser = |json| {
    ///     let reviewed = || json.to_value()["reviewed"].as_str().map(str::to_owned);
    ///     Evidence::from_json(json)
    ///         .or_else(|| Some(Evidence::from_command(format!("review of {}", reviewed()?), 0)))
    /// };
    /// ```
    pub evidence_parser: fn(&RawJson) -> Option<Evidence>,
}

impl Default for RequireEvidence {
    fn default() -> Self {
        Self {
            only_after_changes: false,
            read_only_tools: Vec::new(),
            instructions: DEFAULT_INSTRUCTIONS.to_owned(),
            blocked_detector: |turn| strip_blocked_prefix(&turn.text()).map(str::to_owned),
            evidence_parser: Evidence::from_json,
        }
    }
}

impl RequireEvidence {
    /// Creates a policy that requires a passing check for every claim, even if the run changed
    /// nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides what the log's results prove under this policy; see [`EvidenceLog::verdict`].
    pub fn verdict(&self, standing: &EvidenceLog) -> EvidenceVerdict {
        standing.verdict_under(self)
    }

    /// If the turn's text says that the model is blocked, returns a description of what is missing.
    /// The description is empty if the text does not say what is missing. Returns `None` if the
    /// model is not blocked.
    fn blocked_reason(&self, turn: &Turn) -> Option<String> {
        (self.blocked_detector)(turn).map(|missing| missing.trim().to_owned())
    }

    fn unproven_reason(&self, standing: &EvidenceLog) -> Option<UnprovenReason> {
        let changed = standing.has_changes(self);
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
