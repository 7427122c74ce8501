//! One turn, attempted again and again: what `Retry` and the providers over HTTP share.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::env::Deadline;
use crate::error::Error;
use crate::provider::retry::policy::RetryPolicy;
use crate::request::Retries;
use crate::stream::{TurnPoll, TurnSource};
use crate::turn::TurnBuilder;

/// Makes the attempts at one turn.
pub(in crate::provider) trait Attempts {
    /// One attempt.
    type Attempt: TurnSource + Unpin;

    /// Begins an attempt. `failed` is the error of the one before.
    fn begin(&mut self, failed: Option<&Error>) -> Self::Attempt;

    /// Whether the first error of a turn is due to a stale connection, so that the request is sent
    /// again without a wait.
    fn is_stale(&self, error: &Error) -> bool {
        let _ = error;
        false
    }

    /// The model has begun its answer: the turn is not attempted again unless it retracts.
    fn on_output_started(&mut self) {}
}

/// One turn, attempted until an attempt succeeds or its error is not retried.
pub(in crate::provider) struct RetryingTurn<A: Attempts> {
    attempts: A,
    policy: RetryPolicy,
    /// Whether the caller handles some of the errors itself.
    allowed_errors: Retries,
    /// How many attempts have failed.
    failed_attempts: u32,
    /// Whether the attempts know that the answer has begun.
    has_started: bool,
    stage: RetryStage<A::Attempt>,
}

enum RetryStage<T> {
    /// Before the first attempt.
    First,
    Attempting(T),
    /// Without a timer for an attempt that begins at once.
    Waiting(Option<Deadline>, Error),
}

impl<A: Attempts> RetryingTurn<A> {
    pub(in crate::provider) fn new(attempts: A, policy: RetryPolicy, allowed: Retries) -> Self {
        Self {
            attempts,
            policy,
            allowed_errors: allowed,
            failed_attempts: 0,
            has_started: false,
            stage: RetryStage::First,
        }
    }

    /// Whether it was tried again what this error ended, as often as it may be.
    fn is_exhausted(&self, error: &Error, has_begun: bool) -> bool {
        self.failed_attempts > 1
            && (!has_begun || self.policy.retracts)
            && self.allowed_errors.allow(error)
            && (self.policy.retry_if)(error)
    }

    /// How long to wait before the next attempt; `None` if there is none.
    fn start_waiting(&self, error: &Error, has_begun: bool) -> Option<Duration> {
        if has_begun && !self.policy.retracts {
            return None;
        }
        // Also for a caller that retries, or has another provider to ask: this one has not failed.
        let is_stale = self.failed_attempts == 1
            && self.attempts.is_stale(error)
            && self.allowed_errors.allow_new_connection(error);
        if !is_stale && !self.allowed_errors.allow(error) {
            return None;
        }
        let wait = self.policy.delay_before(self.failed_attempts, error)?;
        Some(if is_stale { Duration::ZERO } else { wait })
    }
}

impl<A: Attempts + Unpin> TurnSource for RetryingTurn<A> {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let this = self.get_mut();
        loop {
            let error = match &mut this.stage {
                RetryStage::First => {
                    this.stage = RetryStage::Attempting(this.attempts.begin(None));
                    continue;
                }
                RetryStage::Waiting(wait, error) => {
                    if let Some(wait) = wait {
                        ready!(wait.poll(cx));
                    }
                    this.has_started = false;
                    this.stage = RetryStage::Attempting(this.attempts.begin(Some(error)));
                    continue;
                }
                RetryStage::Attempting(attempt) => {
                    match ready!(Pin::new(attempt).poll_turn(cx, turn)) {
                        Some(Err(error)) => error,
                        pushed => {
                            if !this.has_started && turn.has_started() {
                                this.has_started = true;
                                this.attempts.on_output_started();
                            }
                            return Poll::Ready(pushed);
                        }
                    }
                }
            };
            this.failed_attempts = this.failed_attempts.saturating_add(1);
            let has_begun = turn.has_started();
            // The wait begins now, whenever the consumer asks for what comes after its report. Without
            // a timer there is none.
            let timed = this.start_waiting(&error, has_begun).and_then(|wait| match wait {
                Duration::ZERO => Some((wait, None)),
                _ => Some((wait, Some(Deadline::set(wait)?))),
            });
            let Some((wait, alarm)) = timed else {
                let error = match this.is_exhausted(&error, has_begun) {
                    true => error.with_retries_exhausted(),
                    false => error,
                };
                return Poll::Ready(Some(Err(error)));
            };
            turn.retract_failed_attempt(&error);
            turn.report_retry(this.failed_attempts, wait, error.clone());
            this.stage = RetryStage::Waiting(alarm, error);
            return Poll::Ready(Some(Ok(())));
        }
    }
}
