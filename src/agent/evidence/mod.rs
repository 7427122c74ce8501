//! Ending only with evidence: what a run changed, what was checked, and what that proves.
//!
//! [`Standing`] is what counts of the results of a run, [`Standing::verdict`] says what it proves,
//! and [`RequireEvidence`] is the policy that [`Agent::with_evidence`](crate::Agent::with_evidence)
//! sets.

mod claim;
mod policy;
mod standing;
mod verdict;

pub use claim::{BLOCKED, blocked_claim};
pub use policy::RequireEvidence;
pub(super) use standing::is_cut_short;
pub use standing::{Noted, Standing};
pub use verdict::{Change, Missing, Verdict};

#[cfg(test)]
mod tests;
