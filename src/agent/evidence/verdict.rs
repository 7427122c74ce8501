//! Pure functions that evaluate the evidence recorded by a run.

use std::fmt;

use crate::agent::evidence::{EvidenceEntry, EvidenceLog, RequireEvidence};
use crate::item::{Evidence, RawJson, SideEffect};

/// The maximum number of side effects that a message lists.
const MAX_LISTED_SIDE_EFFECTS: usize = 5;

/// Whether the evidence that a run has recorded proves its work, and what is missing otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvidenceVerdict {
    /// This check passed after the last change, and the command of every failed check has passed
    /// since the check failed.
    Proven(Evidence),
    /// The run recorded neither changes nor checks.
    NothingChanged,
    /// A change was not checked, or a check failed.
    Unproven(UnprovenReason),
}

/// The reason why a claim is not proven. The output of `Display` is sent to the model and stored in
/// the run's outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnprovenReason {
    /// The latest failed check whose command has not passed since.
    pub failed_check: Option<Evidence>,
    /// The last change, if no check has passed since.
    pub last_change: Option<RecordedChange>,
}

/// A tool call that made, or may have made, a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedChange {
    /// The id of the call.
    pub call_id: String,
    /// The name of the tool.
    pub tool: String,
    /// The changes that the call reports. The list is empty if the call was interrupted, timed out
    /// or panicked, since the changes that such a call made are unknown.
    pub side_effects: Vec<SideEffect>,
}

/// A recorded check.
struct RecordedCheck<'a> {
    entry: &'a EvidenceEntry,
    evidence: Evidence,
    passed: bool,
}

/// The changes and checks reported by the results in the log.
struct ChangesAndChecks<'a> {
    changes: Vec<&'a EvidenceEntry>,
    checks: Vec<RecordedCheck<'a>>,
}

impl EvidenceLog {
    pub(super) fn verdict_under(&self, policy: &RequireEvidence) -> EvidenceVerdict {
        let ChangesAndChecks { changes, checks } = ChangesAndChecks::from_log(self, policy);
        let is_open = |at: usize| !checks[at].passed && !has_passed_later(&checks, at);
        let failed = (0..checks.len()).rfind(|at| is_open(*at)).map(|at| &checks[at].evidence);
        let proof = checks.iter().rfind(|check| check.passed_after_changes(&changes));
        match (failed, proof, changes.last()) {
            (None, Some(check), _) => EvidenceVerdict::Proven(check.evidence.clone()),
            (None, None, None) => EvidenceVerdict::NothingChanged,
            (failed, proof, change) => EvidenceVerdict::Unproven(UnprovenReason {
                failed_check: failed.cloned(),
                last_change: change
                    .filter(|_| proof.is_none())
                    .map(|noted| RecordedChange::from_entry(noted)),
            }),
        }
    }

    /// Returns the evidence that is still valid at the end of the run: failed checks that have not
    /// passed since, and evidence that is not a check. Unless the run as a whole has failed, checks
    /// that passed after the last change are returned as well.
    pub(in crate::agent) fn unresolved_evidence(&self, has_failed: bool) -> Vec<RawJson> {
        let policy = RequireEvidence::default();
        let ChangesAndChecks { changes, checks } = ChangesAndChecks::from_log(self, &policy);
        let others = self.entries().iter().flat_map(EvidenceEntry::evidence);
        let others = others.filter(|json| (policy.evidence_parser)(json).is_none()).cloned();
        let left = checks.iter().enumerate().filter(|(at, check)| match check.passed {
            true => !has_failed && check.passed_after_changes(&changes),
            false => !has_passed_later(&checks, *at),
        });
        others.chain(left.filter_map(|(_, check)| check.to_json())).collect()
    }

    /// Returns whether the command of a check that passed after the last change is `command`.
    pub(super) fn proves(&self, command: &str, policy: &RequireEvidence) -> bool {
        let ChangesAndChecks { changes, checks } = ChangesAndChecks::from_log(self, policy);
        checks
            .iter()
            .any(|check| check.evidence.command == command && check.passed_after_changes(&changes))
    }

    /// Returns the number of consecutive fixes that have failed: changes after which the next check
    /// did not pass. A check that passes resets the number.
    pub(in crate::agent) fn failed_fixes(&self, policy: &RequireEvidence) -> u32 {
        let (mut failed, mut has_changed) = (0, false);
        for entry in self.entries() {
            has_changed |= is_change(entry, policy);
            let mut checks = RecordedCheck::from_entry(entry, policy).peekable();
            if checks.peek().is_none() {
                continue;
            }
            match checks.all(|check| check.passed) {
                true => failed = 0,
                false => failed += u32::from(has_changed),
            }
            has_changed = false;
        }
        failed
    }

    /// Returns whether the log contains a change.
    pub(super) fn has_changes(&self, policy: &RequireEvidence) -> bool {
        self.entries().iter().any(|noted| is_change(noted, policy))
    }
}

fn is_change(noted: &EvidenceEntry, policy: &RequireEvidence) -> bool {
    !noted.side_effects().is_empty()
        || (noted.has_unknown_effects() && !policy.read_only_tools.contains(&noted.tool))
}

/// Returns whether `later` is known to be the result of a call that ran after `earlier` took
/// effect, or whether `later` and `earlier` are the same entry.
fn is_later_batch_or_same_entry(later: &EvidenceEntry, earlier: &EvidenceEntry) -> bool {
    later.batch > earlier.batch || std::ptr::eq(later, earlier)
}

/// Returns whether the command of the check at index `at` passed in a later check.
fn has_passed_later(checks: &[RecordedCheck<'_>], at: usize) -> bool {
    let Some((failed, later)) = checks.get(at..).and_then(<[_]>::split_first) else { return false };
    later.iter().any(|later| {
        later.passed
            && later.evidence.command == failed.evidence.command
            && is_later_batch_or_same_entry(later.entry, failed.entry)
    })
}

impl<'a> ChangesAndChecks<'a> {
    fn from_log(standing: &'a EvidenceLog, policy: &RequireEvidence) -> Self {
        let noted = standing.entries().iter();
        Self {
            changes: noted.clone().filter(|noted| is_change(noted, policy)).collect(),
            checks: noted.flat_map(|noted| RecordedCheck::from_entry(noted, policy)).collect(),
        }
    }
}

impl<'a> RecordedCheck<'a> {
    fn from_entry(by: &'a EvidenceEntry, policy: &RequireEvidence) -> impl Iterator<Item = Self> {
        let is_ok = by.kind.is_success();
        by.evidence().iter().filter_map(|json| (policy.evidence_parser)(json)).map(
            move |evidence| RecordedCheck {
                entry: by,
                passed: is_ok && evidence.is_passing(),
                evidence,
            },
        )
    }

    /// Returns whether this check passed after all changes.
    fn passed_after_changes(&self, changes: &[&EvidenceEntry]) -> bool {
        self.passed && changes.iter().all(|change| is_later_batch_or_same_entry(self.entry, change))
    }

    /// Returns the check as JSON. If the call failed, an exit code of 0 is omitted, since the code
    /// does not show whether the command of a failed call succeeded.
    fn to_json(&self) -> Option<RawJson> {
        let exit_code = self.evidence.exit_code.filter(|code| self.passed || *code != 0);
        RawJson::new(&Evidence { exit_code, ..self.evidence.clone() }).ok()
    }
}

impl RecordedChange {
    fn from_entry(noted: &EvidenceEntry) -> Self {
        Self {
            call_id: noted.call_id.clone(),
            tool: noted.tool.clone(),
            side_effects: noted.side_effects().to_vec(),
        }
    }
}

impl fmt::Display for RecordedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tool, side_effects, .. } = self;
        if side_effects.is_empty() {
            return write!(f, "a call of `{tool}` was interrupted and may have changed something");
        }
        for (at, effect) in side_effects.iter().take(MAX_LISTED_SIDE_EFFECTS).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} `{}`", effect.kind, effect.target)?;
        }
        let more = side_effects.len().saturating_sub(MAX_LISTED_SIDE_EFFECTS);
        match more {
            0 => write!(f, " (by `{tool}`)"),
            _ => write!(f, " and {more} more (by `{tool}`)"),
        }
    }
}

impl fmt::Display for UnprovenReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.failed_check, &self.last_change) {
            (None, None) => f.write_str("no check was recorded"),
            (None, Some(change)) => {
                write!(f, "no check has passed since the last change: {change}")
            }
            (Some(failed), None) => write_failed_check(f, failed),
            (Some(failed), Some(change)) => {
                write_failed_check(f, failed)?;
                write!(f, ", and no check has passed since the last change: {change}")
            }
        }
    }
}

fn write_failed_check(f: &mut fmt::Formatter<'_>, failed: &Evidence) -> fmt::Result {
    let command = &failed.command;
    match failed.exit_code {
        Some(0) => write!(f, "the call that ran `{command}` failed"),
        Some(code) => write!(f, "`{command}` failed with exit code {code}"),
        None => write!(f, "`{command}` ended without an exit code"),
    }?;
    f.write_str(" and has not passed since")
}
