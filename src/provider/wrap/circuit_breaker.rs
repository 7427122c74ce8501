//! A provider that stops sending requests while its inner provider is down.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use futures::future::BoxFuture;

use crate::error::{Error, ErrorKind};
use crate::item::Part;
use crate::lock::lock_ignoring_poison;
use crate::provider::Provider;
use crate::provider::wrap::first_poll::start_at_first_poll;
use crate::provider::wrap::should_fall_back::ErrorPredicate;
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream};
use crate::turn::{PartialTurn, TurnBuilder};

/// Wraps a provider in a circuit breaker, which rejects requests for a limited time after too many
/// consecutive failures.
///
/// Retries by the inner provider are not counted: each request counts only once, based on its final
/// result.
///
/// - **Closed**: requests are sent to the inner provider. The circuit opens after several
///   consecutive failures: 5 by default, or the number set with
///   [`with_max_failures`](Self::with_max_failures). By default, a failure is a transient error of
///   the kinds that [`Retry`](crate::provider::Retry) retries. To count other errors, use
///   [`count_if`](Self::count_if). A completed turn resets the count; other errors and dropped
///   turns do not affect it.
/// - **Open**: each request immediately gets an [`Overloaded`](ErrorKind::Overloaded) error, and
///   nothing is sent. The error's [`retry_after`](Error::retry_after) is the time left until the
///   end of the [cooldown](Self::with_cooldown) (30 s by default). The error's source is the last
///   failure, without its partial turn.
/// - **Half-open**, after the cooldown: a single request is sent as a probe. While it is running,
///   other requests are rejected, without a `retry_after`. If the probe's turn completes, the
///   circuit closes; if the turn fails, the circuit opens again. If the probe is dropped or ends
///   with an error that does not count as a failure, the next request becomes the probe.
///
/// Clones share a single circuit, protected by a mutex that is never held across an await point.
///
/// ```
/// use turnstream::provider::{CircuitBreaker, Fallback, Provider, Reply, Scripted};
/// use turnstream::stream::TurnStreamExt;
/// use turnstream::{Error, ErrorKind, History, Request, env::SystemIds};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let down = Scripted::from_fn(|_, _| Reply::error(Error::new(ErrorKind::Server, "down")));
/// let model = Fallback::new(CircuitBreaker::new(down.clone()).with_max_failures(2))
///     .or(Scripted::from_fn(|_, _| "Hello!"));
/// for _ in 0..10 {
///     let request = Request::new(History::new(&SystemIds));
///     assert_eq!(model.stream_turn(request).into_turn().await?.text(), "Hello!");
/// }
/// assert_eq!(down.requests().len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CircuitBreaker {
    provider: Arc<dyn Provider>,
    max_failures: u32,
    cooldown: Duration,
    counts_as_failure: Arc<ErrorPredicate>,
    state: Arc<Mutex<CircuitState>>,
}

#[derive(Clone, Debug)]
enum CircuitState {
    Closed { failures: u32 },
    Open { until: Instant, last_error: Error },
    HalfOpen { last_error: Error },
}

impl CircuitBreaker {
    /// Wraps a provider in a circuit breaker, which is closed at first. To protect the same
    /// provider in several agents, clone the circuit breaker.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self {
            provider: Arc::new(provider),
            max_failures: 5,
            cooldown: Duration::from_secs(30),
            counts_as_failure: Arc::new(Error::is_retryable),
            state: Arc::new(Mutex::new(CircuitState::Closed { failures: 0 })),
        }
    }

    /// Sets the number of consecutive failures that open the circuit. The default is 5, and 0 is
    /// treated as 1.
    pub fn with_max_failures(mut self, failures: u32) -> Self {
        self.max_failures = failures.max(1);
        self
    }

    /// Sets how long the circuit stays open before a request may be sent again. The default is 30
    /// seconds.
    pub fn with_cooldown(mut self, rest: Duration) -> Self {
        self.cooldown = rest;
        self
    }

    /// Replaces the default rule for which errors count as failures: an error counts as a failure
    /// only if `choose` returns true for it.
    pub fn count_if(mut self, choose: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.counts_as_failure = Arc::new(choose);
        self
    }

    /// Returns whether the next request would fail with an [`Overloaded`](ErrorKind::Overloaded)
    /// error without being sent, which is also the case while a probe is running. Use it to report
    /// the provider's health or to choose another provider.
    pub fn is_open(&self) -> bool {
        self.with_state(|circuit| match circuit {
            CircuitState::Closed { .. } => false,
            CircuitState::Open { until, .. } => Instant::now() < *until,
            CircuitState::HalfOpen { .. } => true,
        })
    }

    /// Returns a permit to send a request, or the error with which the request is rejected.
    fn acquire_permit(&self) -> Result<CircuitPermit, Error> {
        let probes = self.with_state(|circuit| match circuit {
            CircuitState::Closed { .. } => Ok(false),
            CircuitState::Open { until, last_error: last } => {
                match until.saturating_duration_since(Instant::now()) {
                    Duration::ZERO => {
                        *circuit = CircuitState::HalfOpen { last_error: last.clone() };
                        Ok(true)
                    }
                    left => Err(open_error(last).with_retry_after(round_up_to_millis(left))),
                }
            }
            CircuitState::HalfOpen { last_error: last } => Err(open_error(last)),
        })?;
        Ok(CircuitPermit { breaker: self.clone(), is_probe: probes })
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut CircuitState) -> T) -> T {
        // No user code runs while the lock is held.
        f(&mut lock_ignoring_poison(&self.state))
    }
}

fn open_error(last: &Error) -> Error {
    let message = format!("the circuit is open after too many failures: {last}");
    Error::new(ErrorKind::Overloaded, message).with_source(last.clone())
}

/// Removes the partial turn from an error, because one request's output must not leak into another
/// request's error.
fn without_partial_turn(error: &Error) -> Error {
    match error.find_source::<PartialTurn>() {
        Some(_) => error.clone().without_source(),
        None => error.clone(),
    }
}

/// Rounds a duration up to whole milliseconds, so that a caller who waits for the rounded duration
/// does not retry too early.
fn round_up_to_millis(time: Duration) -> Duration {
    let millis = time.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// A permit to send a single request. If the permit for a probe (the only request sent while the
/// circuit is half-open) is dropped, the next request becomes the probe.
struct CircuitPermit {
    breaker: CircuitBreaker,
    is_probe: bool,
}

impl CircuitPermit {
    fn record_success(mut self) {
        let probes = std::mem::take(&mut self.is_probe);
        self.breaker.with_state(|circuit| match circuit {
            CircuitState::Closed { .. } => *circuit = CircuitState::Closed { failures: 0 },
            CircuitState::HalfOpen { .. } if probes => {
                *circuit = CircuitState::Closed { failures: 0 }
            }
            // The request was sent before the circuit opened, so its result does not reflect the
            // provider's current state.
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => {}
        });
    }

    fn record_failure(mut self, error: &Error) {
        if !(self.breaker.counts_as_failure)(error) {
            return;
        }
        let probes = std::mem::take(&mut self.is_probe);
        let (after, rest) = (self.breaker.max_failures, self.breaker.cooldown);
        let now = Instant::now();
        self.breaker.with_state(|circuit| {
            let opens = match circuit {
                CircuitState::Closed { failures } => {
                    *failures = failures.saturating_add(1);
                    *failures >= after
                }
                CircuitState::HalfOpen { .. } => probes,
                CircuitState::Open { .. } => false,
            };
            if opens {
                // In practice, a cooldown that overflows `Instant` outlasts the process.
                let until = now.checked_add(rest).unwrap_or(now + Duration::from_secs(1 << 32));
                *circuit = CircuitState::Open { until, last_error: without_partial_turn(error) };
            }
        });
    }
}

impl Drop for CircuitPermit {
    fn drop(&mut self) {
        if !self.is_probe {
            return;
        }
        let now = Instant::now();
        self.breaker.with_state(|circuit| {
            if let CircuitState::HalfOpen { last_error: last } = circuit {
                *circuit = CircuitState::Open { until: now, last_error: last.clone() };
            }
        });
    }
}

impl Provider for CircuitBreaker {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let breaker = self.clone();
        start_at_first_poll(request, move |request, _| {
            let pass = Some(breaker.acquire_permit()?);
            Ok(GuardedTurn { attempt: breaker.provider.stream_turn(request), permit: pass })
        })
    }

    fn model(&self) -> &str {
        self.provider.model()
    }

    fn has_tool_search(&self) -> bool {
        self.provider.has_tool_search()
    }

    fn check_parts(&self, parts: &[Part]) -> Result<(), Error> {
        self.provider.check_parts(parts)
    }

    fn count_tokens(&self, request: &Request) -> Option<BoxFuture<'static, Result<u64, Error>>> {
        self.provider.count_tokens(request)
    }
}

impl_debug!(
    CircuitBreaker(it),
    model = it.model(),
    max_failures = it.max_failures,
    cooldown = it.cooldown,
    circuit = it.with_state(|circuit| circuit.clone())
);

/// Wraps a turn and records in the circuit breaker how the turn ended.
struct GuardedTurn {
    attempt: TurnStream,
    /// The permit for the turn's request, or `None` once the circuit breaker has recorded how the
    /// turn ended.
    permit: Option<CircuitPermit>,
}

impl TurnSource for GuardedTurn {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let this = self.get_mut();
        let pushed = ready!(Pin::new(&mut this.attempt).poll_turn(cx, turn));
        match (&pushed, &mut this.permit) {
            (Some(Ok(())), _) if !turn.is_complete() => {}
            (Some(Ok(())), pass) => pass.take().into_iter().for_each(CircuitPermit::record_success),
            (Some(Err(error)), pass) => {
                pass.take().into_iter().for_each(|pass| pass.record_failure(error));
            }
            (None, pass) => *pass = None,
        }
        Poll::Ready(pushed)
    }

    fn describe(&self, turn: &mut TurnBuilder) {
        self.attempt.describe(turn);
    }
}
