//! Reports the results of the suite's checks.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use crate::panic::panic_message;
use crate::provider_suite::subject::Subject;

/// The reason why a check did not pass: it was skipped, or it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnmetClaim {
    /// The check was skipped. The string contains the reason.
    Skipped(String),
    /// The check failed. The string describes the expected and the actual behavior.
    Failed(String),
}

/// The result of each check, in the order in which the checks ran. The `Display` output has one
/// line per check.
#[derive(Clone, Debug, Default)]
#[must_use = "a claim that failed is only in here"]
pub struct Report {
    claim_results: Vec<(&'static str, Result<(), UnmetClaim>)>,
}

impl Report {
    /// Returns the names of the checks that passed, in the order in which they ran.
    pub fn passed(&self) -> impl Iterator<Item = &'static str> {
        self.claim_results.iter().filter(|(_, result)| result.is_ok()).map(|(claim, _)| *claim)
    }

    /// Returns the names of the checks that were skipped, each with the reason.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.claim_results.iter().filter_map(|(claim, result)| match result {
            Err(UnmetClaim::Skipped(why)) => Some((*claim, why.as_str())),
            Ok(()) | Err(UnmetClaim::Failed(_)) => None,
        })
    }

    /// Returns the names of the checks that failed, each with a description of the failure.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.claim_results.iter().filter_map(|(claim, result)| match result {
            Err(UnmetClaim::Failed(why)) => Some((*claim, why.as_str())),
            Ok(()) | Err(UnmetClaim::Skipped(_)) => None,
        })
    }

    /// Prints the skipped checks and panics if any check failed.
    ///
    /// # Panics
    ///
    /// Panics if any check failed. The panic message contains the complete report.
    #[track_caller]
    pub fn assert(&self) {
        assert!(self.failed().next().is_none(), "the provider breaks its contract:\n{self}");
        for (claim, why) in self.skipped() {
            eprintln!("skipped {claim}: {why}");
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claim_results.is_empty()
    }

    /// Adds a failure for a name that does not belong to any check in the suite.
    pub(super) fn fail_unknown_claim(&mut self, name: &str) {
        let why = format!("no claim has this name: `{name}`");
        self.claim_results.push(("check_claim", Err(UnmetClaim::Failed(why))));
    }

    /// Runs a check and adds its result. If the provider panics, the check fails.
    pub(super) async fn run_check<S: Subject>(
        &mut self,
        subject: &S,
        claim: &'static str,
        holds: impl Future<Output = Result<(), UnmetClaim>>,
    ) {
        let result = match subject.exemption_reason(claim) {
            Some(why) => Err(UnmetClaim::Skipped(why)),
            None => AssertUnwindSafe(holds).catch_unwind().await.unwrap_or_else(|payload| {
                Err(UnmetClaim::Failed(format!("it panicked: {}", panic_message(&*payload))))
            }),
        };
        self.claim_results.push((claim, result));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (claim, result) in &self.claim_results {
            match result {
                Ok(()) => writeln!(f, "passed  {claim}")?,
                Err(UnmetClaim::Skipped(why)) => writeln!(f, "skipped {claim}: {why}")?,
                Err(UnmetClaim::Failed(why)) => writeln!(f, "FAILED  {claim}: {why}")?,
            }
        }
        Ok(())
    }
}

/// Returns `Ok` if `holds` is true. Otherwise, returns a failure with the message that `why`
/// returns.
pub(super) fn ensure_that(holds: bool, why: impl FnOnce() -> String) -> Result<(), UnmetClaim> {
    match holds {
        true => Ok(()),
        false => Err(UnmetClaim::Failed(why())),
    }
}
