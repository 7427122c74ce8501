//! A provider that is left alone while it is down.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::lock::lock_ignoring_poison;
use crate::provider::Provider;
use crate::provider::first_poll::start_at_first_poll;
use crate::provider::should_fall_back::ErrorPredicate;
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream};
use crate::turn::{PartialTurn, TurnBuilder};

/// A provider that is not asked for a while when it failed too often in a row.
///
/// A request that the provider below sends again counts once, by how it ends.
///
/// - **Closed**: requests go through. So many failures in a row as [`with_max_failures`](Self::with_max_failures) says (5)
///   open it. A failure is an error that may pass, of the kinds that
///   [`Retry`](crate::provider::Retry) asks again behind, or what [`count_if`](Self::count_if) chooses. A turn
///   that completes begins the count anew; another error, and a turn that is dropped, change
///   nothing.
/// - **Open**: each request gets an [`Overloaded`](ErrorKind::Overloaded) error at once, and nothing
///   is sent. Its [`retry_after`](Error::retry_after) is the time that is left of the
///   [`with_cooldown`](Self::with_cooldown) (30 s), its source the last failure, without the turn that it cut off.
/// - **Half-open**, when that time is over: one request goes through, the others are answered as
///   before, without a time. If its turn completes, the circuit is closed, if it fails, open again.
///   If it is dropped, or ends with an error that is no failure, the next one takes its place.
///
/// Clones share one circuit: a small lock, never held while anything is waited for.
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
    /// Puts a breaker around a provider.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self {
            provider: Arc::new(provider),
            max_failures: 5,
            cooldown: Duration::from_secs(30),
            counts_as_failure: Arc::new(Error::is_retryable),
            state: Arc::new(Mutex::new(CircuitState::Closed { failures: 0 })),
        }
    }

    /// Opens after so many failures in a row. 0 is read as 1.
    pub fn with_max_failures(mut self, failures: u32) -> Self {
        self.max_failures = failures.max(1);
        self
    }

    /// Lets the provider rest for so long.
    pub fn with_cooldown(mut self, rest: Duration) -> Self {
        self.cooldown = rest;
        self
    }

    /// Counts the errors for which this is true as failures, and no others.
    pub fn count_if(mut self, choose: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.counts_as_failure = Arc::new(choose);
        self
    }

    /// Whether the next request would be refused.
    pub fn is_open(&self) -> bool {
        self.with_state(|circuit| match circuit {
            CircuitState::Closed { .. } => false,
            CircuitState::Open { until, .. } => Instant::now() < *until,
            CircuitState::HalfOpen { .. } => true,
        })
    }

    /// Lets a request through, or says why not.
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
        // Nothing of a user runs while the lock is held.
        f(&mut lock_ignoring_poison(&self.state))
    }
}

fn open_error(last: &Error) -> Error {
    let message = format!("the provider failed too often and is not asked for a while: {last}");
    Error::new(ErrorKind::Overloaded, message).with_source(last.clone())
}

/// What was said to one request is not shown to another.
fn without_partial_turn(error: &Error) -> Error {
    match PartialTurn::from_error(error) {
        Some(_) => error.clone().without_source(),
        None => error.clone(),
    }
}

/// Rounded up: who waits for so long is not early.
fn round_up_to_millis(time: Duration) -> Duration {
    let millis = time.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// The permission to ask. The probe's is given back when it is dropped.
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
            // It was asked before the circuit opened and says nothing of now.
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
                // A rest beyond the end of time never ends in this process.
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
}

impl fmt::Debug for CircuitBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker")
            .field("model", &self.model())
            .field("after", &self.max_failures)
            .field("rest", &self.cooldown)
            .field("circuit", &self.with_state(|circuit| circuit.clone()))
            .finish_non_exhaustive()
    }
}

/// One turn behind a breaker.
struct GuardedTurn {
    attempt: TurnStream,
    /// `None` once the breaker was told how the turn ended.
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
}
