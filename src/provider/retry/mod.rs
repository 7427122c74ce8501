//! A provider that sends a failed request again.

mod attempts;
mod backoff;
mod policy;

use std::fmt;
use std::sync::Arc;

pub(super) use attempts::{Attempts, RetryingTurn};
pub use backoff::Backoff;
pub(super) use policy::RetryPolicy;

use crate::env::Random;
use crate::error::Error;
use crate::provider::Provider;
use crate::request::{Request, Retries};
use crate::stream::{TurnStream, seal};
use crate::turn::TurnBuilder;

/// A provider that sends a request again after a transient error.
///
/// Providers over HTTP also retry on their own by default, but after fewer kinds of errors; [the
/// guide](crate::guide::providers) has a table of both. `Retry` works with any provider.
///
/// `Retry` retries errors of the kinds `connect`, `timeout`, `rate_limited`, `overloaded`,
/// `server`, `generation_failed` and `incomplete_turn`. If [`retry_if`](Self::retry_if) is set, the
/// errors that it selects are retried instead. The number of attempts and the delays are set in
/// [`Backoff`]. Each attempt sends the same request. The last attempt's error is returned
/// unchanged. Each attempt has the full time limits of the inner provider.
///
/// Each delay is reported by a [`Retrying`](crate::TurnEvent::Retrying) event before it starts.
///
/// A request is retried only if the attempt has produced no output, unless
/// [`with_retraction`](Self::with_retraction) is set. A request is never retried after
/// `TurnComplete`. A usage report does not count as output. The usage of a failed attempt is added
/// to the run by a [`Retracted`](crate::TurnEvent::Retracted) event, so that the usage is counted
/// once.
///
/// Only the outermost layer retries. The providers inside send each attempt once; only a connection
/// that the server had closed is replaced immediately, in the first attempt. A `Retry` inside
/// another `Retry` does not retry the errors that the outer `Retry` handles. A `Retry` inside a
/// [`Fallback`](crate::provider::Fallback) does not retry the errors that cause a fallback, while a
/// further provider is left.
///
/// A request without a response may still have been processed and charged. After `connect`,
/// `timeout` and `incomplete_turn` errors, it is unknown whether the request was processed. No
/// idempotency key is sent.
///
/// Dropping the stream cancels the running attempt or the delay; nothing is sent afterwards. Clones
/// share the inner provider.
///
/// ```
/// use turnstream::provider::{Provider, Reply, Retry, Scripted};
/// use turnstream::stream::TurnStreamExt;
/// use turnstream::{Error, ErrorKind, History, Request, env::SystemIds};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let busy = || Error::new(ErrorKind::Overloaded, "busy");
/// let model = Scripted::new([Reply::error(busy()), Reply::error(busy()), Reply::text("Hello!")]);
/// let retrying = Retry::new(model.clone());
/// let turn = retrying.stream_turn(Request::new(History::new(&SystemIds))).into_turn().await?;
/// assert_eq!(turn.text(), "Hello!");
/// assert_eq!(model.requests().len(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Retry {
    provider: Arc<dyn Provider>,
    policy: RetryPolicy,
}

impl Retry {
    /// Creates a provider that retries with the default [`Backoff`]: at most 3 attempts.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self { provider: Arc::new(provider), policy: RetryPolicy::new(Error::is_retryable) }
    }

    /// Sets the number of attempts and the delays between them.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Sets the source of randomness for the jitter.
    pub fn with_random(mut self, random: impl Random + 'static) -> Self {
        self.policy.random = Arc::new(random);
        self
    }

    /// Retries an error only if `choose` returns true for the error.
    pub fn retry_if(mut self, choose: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.policy.retry_if = Arc::new(choose);
        self
    }

    /// Also retries after output was received. The output is retracted by a
    /// [`Retracted`](crate::TurnEvent::Retracted) event as soon as the attempt has failed, before
    /// the delay.
    ///
    /// Without this setting, output is never retracted, and the attempt's error is returned.
    pub fn with_retraction(mut self) -> Self {
        self.policy.retracts = true;
        self
    }
}

impl Provider for Retry {
    fn stream_turn(&self, mut request: Request) -> TurnStream {
        let turn = TurnBuilder::from(&request);
        let allowed = request.retries.clone();
        if !allowed.is_none() {
            // A first attempt that only needs a new connection does not count as failed.
            let allows = Arc::clone(&self.policy.retry_if);
            request.retries = Retries::none().with_reconnect_if(allows);
        }
        let attempts = ProviderAttempts { provider: Arc::clone(&self.provider), request };
        seal(turn, RetryingTurn::new(attempts, self.policy.clone(), allowed))
    }

    fn model(&self) -> &str {
        self.provider.model()
    }

    fn has_tool_search(&self) -> bool {
        self.provider.has_tool_search()
    }
}

/// The attempts that call the inner provider.
struct ProviderAttempts {
    provider: Arc<dyn Provider>,
    request: Request,
}

impl Attempts for ProviderAttempts {
    type Attempt = TurnStream;

    fn begin_attempt(&mut self, failed: Option<&Error>) -> TurnStream {
        let mut request = self.request.clone();
        if let Some(failed) = failed {
            request.retries = Retries::none();
            if was_connection_closed(failed) {
                request.retries = request.retries.requires_new_connection();
            }
        }
        self.provider.stream_turn(request)
    }
}

/// Returns whether the error occurred because the server had closed the connection.
fn was_connection_closed(error: &Error) -> bool {
    #[cfg(feature = "http")]
    let was_closed = crate::http::was_connection_closed(error);
    #[cfg(not(feature = "http"))]
    let was_closed = {
        let _ = error;
        false
    };
    was_closed
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("model", &self.model())
            .field("backoff", &self.policy.backoff)
            .field("retracts", &self.policy.retracts)
            .finish_non_exhaustive()
    }
}
