//! The evidence that a run must record in order to complete: the run's changes, its checks, and
//! what the checks prove.
//!
//! [`EvidenceLog`] records the relevant tool results, and [`RequireEvidence`] is the policy
//! that decides what these results prove. Pass it to
//! [`Agent::with_evidence`](crate::Agent::with_evidence).

mod blocked_claim;
mod evidence_log;
mod judge_claim;
mod require_evidence;
mod verdict;

pub(crate) use blocked_claim::strip_blocked_prefix;
pub(super) use evidence_log::has_unknown_effects;
pub use evidence_log::{EvidenceEntry, EvidenceLog};
pub use require_evidence::RequireEvidence;
pub use verdict::{EvidenceVerdict, RecordedChange, UnprovenReason};

#[cfg(test)]
mod tests;
