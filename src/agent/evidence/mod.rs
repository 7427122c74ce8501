//! Ending only with evidence: what a run changed, what was checked, and what that proves.
//!
//! [`EvidenceLog`] is what counts of the results of a run, [`EvidenceLog::verdict`] says what it proves,
//! and [`RequireEvidence`] is the policy that [`Agent::with_evidence`](crate::Agent::with_evidence)
//! sets.

mod claim;
mod policy;
mod standing;
mod verdict;

pub use claim::BLOCKED_PREFIX;
pub(crate) use claim::strip_blocked_prefix;
pub use policy::RequireEvidence;
pub(super) use standing::has_unknown_effects;
pub use standing::{EvidenceEntry, EvidenceLog};
pub use verdict::{EvidenceVerdict, RecordedChange, UnprovenReason};

#[cfg(test)]
mod tests;
