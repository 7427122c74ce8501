//! Makes attempts at a turn, for `Retry` and for the HTTP providers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::env::Deadline;
use crate::error::Error;
use crate::provider::wrap::retry::policy::RetryPolicy;
use crate::request::Retries;
use crate::stream::{TurnPoll, TurnSource};
use crate::turn::TurnBuilder;

/// Starts the attempts at a turn.
pub(in crate::provider) trait Attempts {
    /// The turn that a single attempt produces.
    type Turn: TurnSource + Unpin;

    /// Starts an attempt. `failed` is the previous attempt's error, if any.
    fn begin_attempt(&mut self, failed: Option<&Error>) -> Self::Turn;

    /// Returns whether the first attempt failed because of a stale connection, in which case the
    /// request is resent without a delay.
    fn is_stale_connection(&self, error: &Error) -> bool {
        let _ = error;
        false
    }

    /// Sets what an attempt knows about its incomplete turn; see [`TurnSource::describe`].
    fn describe(attempt: &Self::Turn, turn: &mut TurnBuilder) {
        attempt.describe(turn);
    }

    /// Called when the model's output starts, after which the turn is retried only if the output is
    /// retracted.
    fn on_output_started(&mut self) {}
}

/// A turn that is attempted until an attempt succeeds or fails with an error that is not retried.
pub(in crate::provider) struct RetryingTurn<A: Attempts> {
    attempts: A,
    policy: RetryPolicy,
    /// The request's setting, which excludes the errors that the caller handles itself.
    request_retries: Retries,
    /// The number of failed attempts.
    failed_attempts: u32,
    /// Whether [`Attempts::on_output_started`] was called during this attempt.
    has_output_started: bool,
    stage: RetryStage<A::Turn>,
}

enum RetryStage<T> {
    /// The first attempt has not started.
    NotStarted,
    Attempting(T),
    /// The turn is waiting for the next attempt. The deadline is `None` if the next attempt starts
    /// immediately.
    Waiting(Option<Deadline>, Error),
}

impl<A: Attempts> RetryingTurn<A> {
    pub(in crate::provider) fn new(attempts: A, policy: RetryPolicy, allowed: Retries) -> Self {
        Self {
            attempts,
            policy,
            request_retries: allowed,
            failed_attempts: 0,
            has_output_started: false,
            stage: RetryStage::NotStarted,
        }
    }

    /// Returns whether the turn has failed more than once and would be retried after this error if
    /// more attempts were allowed.
    fn are_retries_exhausted(&self, error: &Error, has_begun: bool) -> bool {
        self.failed_attempts > 1
            && (!has_begun || self.policy.retracts)
            && self.request_retries.can_retry(error)
            && (self.policy.retry_if)(error)
    }

    /// Returns the delay before the next attempt, or `None` if the turn is not retried after this
    /// error.
    fn next_delay(&self, error: &Error, has_begun: bool) -> Option<Duration> {
        if has_begun && !self.policy.retracts {
            return None;
        }
        // A stale connection is replaced even if the caller itself retries or falls back, since it
        // does not mean that the provider failed.
        let is_stale = self.failed_attempts == 1
            && self.attempts.is_stale_connection(error)
            && self.request_retries.can_reconnect(error);
        if !is_stale && !self.request_retries.can_retry(error) {
            return None;
        }
        let wait = self.policy.delay_after(self.failed_attempts, error)?;
        Some(if is_stale { Duration::ZERO } else { wait })
    }
}

impl<A: Attempts + Unpin> TurnSource for RetryingTurn<A> {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let this = self.get_mut();
        loop {
            let error = match &mut this.stage {
                RetryStage::NotStarted => {
                    this.stage = RetryStage::Attempting(this.attempts.begin_attempt(None));
                    continue;
                }
                RetryStage::Waiting(wait, error) => {
                    if let Some(wait) = wait {
                        ready!(wait.poll(cx));
                    }
                    this.has_output_started = false;
                    this.stage = RetryStage::Attempting(this.attempts.begin_attempt(Some(error)));
                    continue;
                }
                RetryStage::Attempting(attempt) => {
                    match ready!(Pin::new(attempt).poll_turn(cx, turn)) {
                        Some(Err(error)) => error,
                        pushed => {
                            if !this.has_output_started && turn.has_started() {
                                this.has_output_started = true;
                                this.attempts.on_output_started();
                            }
                            return Poll::Ready(pushed);
                        }
                    }
                }
            };
            this.failed_attempts = this.failed_attempts.saturating_add(1);
            let has_begun = turn.has_started();
            // The delay starts immediately, rather than when the consumer polls again after the
            // `Retrying` event. If no timer can be created, the error is returned.
            let timed = this.next_delay(&error, has_begun).and_then(|wait| match wait {
                Duration::ZERO => Some((wait, None)),
                _ => Some((wait, Some(Deadline::try_start(wait)?))),
            });
            let Some((wait, deadline)) = timed else {
                let error = match this.are_retries_exhausted(&error, has_begun) {
                    true => error.mark_retries_exhausted(),
                    false => error,
                };
                return Poll::Ready(Some(Err(error)));
            };
            turn.retract_failed_attempt(&error);
            turn.report_retry(this.failed_attempts, wait, error.clone());
            this.stage = RetryStage::Waiting(deadline, error);
            return Poll::Ready(Some(Ok(())));
        }
    }

    fn describe(&self, turn: &mut TurnBuilder) {
        if let RetryStage::Attempting(attempt) = &self.stage {
            A::describe(attempt, turn);
        }
    }
}
