//! Decides whether, and after what delay, a turn is retried after an error.

use std::sync::Arc;
use std::time::Duration;

use crate::env::{Random, SystemRandom};
use crate::error::Error;
use crate::provider::Backoff;
use crate::provider::wrap::should_fall_back::ErrorPredicate;

/// Specifies the errors after which a turn is retried, the maximum number of attempts, and the
/// delays between them.
#[derive(Clone)]
pub(in crate::provider) struct RetryPolicy {
    pub(in crate::provider) backoff: Backoff,
    pub(in crate::provider) random: Arc<dyn Random>,
    pub(in crate::provider) retry_if: Arc<ErrorPredicate>,
    /// Whether a turn is retried even if the failed attempt has produced output, which is retracted
    /// before the retry.
    pub(in crate::provider) retracts: bool,
}

impl RetryPolicy {
    /// Creates a policy that has the default backoff and retries after errors for which `retry_if`
    /// returns `true`.
    pub(in crate::provider) fn new(
        retry_if: impl Fn(&Error) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            backoff: Backoff::default(),
            random: Arc::new(SystemRandom),
            retry_if: Arc::new(retry_if),
            retracts: false,
        }
    }

    /// Returns the delay before the next attempt after `failed` failed attempts, the last of which
    /// failed with `error`. Returns `None` if the turn is not retried.
    pub(super) fn delay_after(&self, failed: u32, error: &Error) -> Option<Duration> {
        if !(self.retry_if)(error) {
            return None;
        }
        self.backoff.delay_after(failed, error.retry_after(), &*self.random)
    }
}

impl_debug!(RetryPolicy(it), backoff = it.backoff, retracts = it.retracts);
