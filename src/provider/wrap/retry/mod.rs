//! A provider that retries failed requests.

mod attempts;
mod backoff;
mod policy;

use std::sync::Arc;

pub(in crate::provider) use attempts::{Attempts, RetryingTurn};
pub use backoff::Backoff;
pub(in crate::provider) use policy::RetryPolicy;

use futures::future::BoxFuture;

use crate::env::Random;
use crate::error::Error;
use crate::item::Part;
use crate::provider::Provider;
use crate::request::{Request, Retries};
use crate::stream::{TurnStream, seal};
use crate::turn::TurnBuilder;

/// Wraps a provider and retries requests that fail with a transient error.
///
/// By default, HTTP providers also retry on their own, but after fewer kinds of errors; a table in
/// [the guide](crate::guide::providers) compares these retries with those of `Retry`. `Retry` works
/// with any provider.
///
/// A request is retried after errors of the kinds `connect`, `timeout`, `rate_limited`,
/// `overloaded`, `server`, `generation_failed` and `incomplete_turn`. To select other errors, use
/// [`retry_if`](Self::retry_if). A [`Backoff`] specifies the maximum number of attempts and the
/// delays. Each attempt sends the same request. The last attempt's error is returned unchanged. The
/// inner provider's time limits apply to each attempt separately.
///
/// A [`Retrying`](crate::TurnEvent::Retrying) event announces each delay.
///
/// A request is retried only if the failed attempt has not produced any output, unless
/// [`with_retraction`](Self::with_retraction) is set. A usage report does not count as output. A
/// request is never retried after `TurnComplete`. A [`Retracted`](crate::TurnEvent::Retracted)
/// event adds the failed attempt's token usage to the run's usage, so that each attempt's usage is
/// counted once.
///
/// Only the outermost layer retries. The inner providers send the request once per attempt. The
/// only exception is the first attempt, in which a connection that was closed by the server is
/// replaced immediately. A `Retry` inside another `Retry` does not retry the errors that the outer
/// `Retry` handles. While there is another provider to fall back to, a `Retry` inside a
/// [`Fallback`](crate::provider::Fallback) does not retry the errors that cause a fallback.
///
/// Even if no response was received, a request may have been processed and charged. After
/// `connect`, `timeout` and `incomplete_turn` errors, it is unknown whether the request was
/// processed. No idempotency key is sent.
///
/// Dropping the stream cancels the current attempt or delay, and nothing is sent afterwards. Clones
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
    /// Creates a provider that retries with the default [`Backoff`], which allows at most 3
    /// attempts.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self { provider: Arc::new(provider), policy: RetryPolicy::new(Error::is_retryable) }
    }

    /// Sets the maximum number of attempts and the delays between attempts.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Sets the source of randomness for the jitter in the retry delays.
    pub fn with_random(mut self, random: impl Random + 'static) -> Self {
        self.policy.random = Arc::new(random);
        self
    }

    /// Replaces the default rule for when to retry: a request is retried after an error only if
    /// `choose` returns `true` for that error.
    pub fn retry_if(mut self, choose: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.policy.retry_if = Arc::new(choose);
        self
    }

    /// Also retries a request after output has been received. As soon as an attempt has failed, and
    /// before the delay, a [`Retracted`](crate::TurnEvent::Retracted) event retracts the attempt's
    /// output.
    ///
    /// Without this setting, output is never retracted, and if an attempt fails after producing
    /// output, the attempt's error is returned without a retry.
    pub fn with_retraction(mut self) -> Self {
        self.policy.retracts = true;
        self
    }
}

impl Provider for Retry {
    fn stream_turn(&self, mut request: Request) -> TurnStream {
        let turn = TurnBuilder::from(&request);
        let allowed = request.allowed_retries();
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

    fn check_parts(&self, parts: &[Part]) -> Result<(), Error> {
        self.provider.check_parts(parts)
    }

    fn count_tokens(&self, request: &Request) -> Option<BoxFuture<'static, Result<u64, Error>>> {
        self.provider.count_tokens(request)
    }
}

/// Starts attempts by calling the inner provider.
struct ProviderAttempts {
    provider: Arc<dyn Provider>,
    request: Request,
}

impl Attempts for ProviderAttempts {
    type Turn = TurnStream;

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

    fn describe(attempt: &TurnStream, turn: &mut TurnBuilder) {
        attempt.describe(turn);
    }
}

/// Returns whether the error was caused by a connection that the server had closed.
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

impl_debug!(
    Retry(it),
    model = it.model(),
    backoff = it.policy.backoff,
    retracts = it.policy.retracts
);
