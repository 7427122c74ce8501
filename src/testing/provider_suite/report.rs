//! What came of the claims.

use std::fmt;
use std::future::Future;

use crate::error::panic_to_error_async;
use crate::testing::provider_suite::subject::Subject;

/// Why a claim is not known to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmet {
    /// It was not checked, for this reason.
    Skipped(String),
    /// It does not hold: what was expected, and what was seen.
    Failed(String),
}

/// What came of each claim, in the order in which they were checked. Displayed, it has a line for
/// each.
#[derive(Clone, Debug, Default)]
#[must_use = "a claim that failed is only in here"]
pub struct Report {
    claims: Vec<(&'static str, Result<(), Unmet>)>,
}

impl Report {
    /// The names of the claims that hold.
    pub fn passed(&self) -> impl Iterator<Item = &'static str> {
        self.claims.iter().filter(|(_, result)| result.is_ok()).map(|(claim, _)| *claim)
    }

    /// The claims that were not checked, with the reasons.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.claims.iter().filter_map(|(claim, result)| match result {
            Err(Unmet::Skipped(why)) => Some((*claim, why.as_str())),
            Ok(()) | Err(Unmet::Failed(_)) => None,
        })
    }

    /// The claims that do not hold, with what was seen instead.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.claims.iter().filter_map(|(claim, result)| match result {
            Err(Unmet::Failed(why)) => Some((*claim, why.as_str())),
            Ok(()) | Err(Unmet::Skipped(_)) => None,
        })
    }

    /// Prints the claims that were skipped, and panics if one failed.
    ///
    /// # Panics
    ///
    /// With the whole report, if a claim failed.
    #[track_caller]
    pub fn assert(&self) {
        assert!(self.failed().next().is_none(), "the provider breaks its contract:\n{self}");
        for (claim, why) in self.skipped() {
            eprintln!("skipped {claim}: {why}");
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Adds the failure of a name that no claim has.
    pub(super) fn fail_unknown_claims(&mut self, name: &str) {
        let why = format!("no claim has this name: `{name}`");
        self.claims.push(("check_claim", Err(Unmet::Failed(why))));
    }

    /// Checks one more claim. A panic of the provider is a failure.
    pub(super) async fn run_check<S: Subject>(
        &mut self,
        subject: &S,
        claim: &'static str,
        holds: impl Future<Output = Result<(), Unmet>>,
    ) {
        let result = match subject.is_exempt(claim) {
            Some(why) => Err(Unmet::Skipped(why)),
            None => panic_to_error_async("it", async { Ok(holds.await) })
                .await
                .unwrap_or_else(|panic| Err(Unmet::Failed(panic.to_string()))),
        };
        self.claims.push((claim, result));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (claim, result) in &self.claims {
            match result {
                Ok(()) => writeln!(f, "passed  {claim}")?,
                Err(Unmet::Skipped(why)) => writeln!(f, "skipped {claim}: {why}")?,
                Err(Unmet::Failed(why)) => writeln!(f, "FAILED  {claim}: {why}")?,
            }
        }
        Ok(())
    }
}

/// Fails unless `holds`.
pub(super) fn ensure_that(holds: bool, why: impl FnOnce() -> String) -> Result<(), Unmet> {
    match holds {
        true => Ok(()),
        false => Err(Unmet::Failed(why())),
    }
}
