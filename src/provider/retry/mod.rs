//! A provider that sends a request again when it failed.

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

/// A provider that sends a request again when it failed for a reason that may pass.
///
/// Providers over HTTP do so by default, for fewer errors: [the guide](crate::guide::limits) has a
/// table of both. `Retry` does it for any provider.
///
/// It retries errors of the kinds `connect`, `timeout`, `rate_limited`, `overloaded`, `server`,
/// `generation_failed` and `incomplete_turn`, or those that [`retry_if`](Self::retry_if) chooses,
/// with the number of attempts and the delays of [`Backoff`]. The request is the same each time.
/// The error of the last attempt is returned as it is. Each attempt has the whole of the time that
/// the provider below gives a turn.
///
/// Each wait is reported by a [`Retrying`](crate::TurnEvent::Retrying) before it begins.
///
/// It retries only while nothing was said, unless [`with_retraction`](Self::with_retraction)
/// allows more, and never after `TurnComplete`. A count of tokens does not stand in the way:
/// what an attempt has counted is handed to the run by [`Retracted`](crate::TurnEvent::Retracted),
/// so that void attempts are paid for once and not taken for words.
///
/// Only the outermost layer retries. The providers below send each attempt once, but that a connection
/// which the server had closed is replaced at once in the first attempt. In turn, a `Retry` below
/// another one, or below a [`Fallback`](crate::provider::Fallback) that has another provider to ask
/// next, does not retry what that one handles.
///
/// A request that was not answered may still have been worked on, and paid for: after `connect`,
/// `timeout` and `incomplete_turn` this cannot be known. No key that would tell the provider of it
/// is sent.
///
/// Dropping the stream cancels the attempt that runs or the wait; nothing is sent afterwards. Clones
/// share the provider below.
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
    /// Retries with the default [`Backoff`]: at most 3 attempts.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self { provider: Arc::new(provider), policy: RetryPolicy::new(Error::is_retryable) }
    }

    /// Sets the number of attempts and the waits between them.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Sets where the jitter comes from.
    pub fn with_random(mut self, random: impl Random + 'static) -> Self {
        self.policy.random = Arc::new(random);
        self
    }

    /// Retries the errors for which this is true, and no others.
    pub fn retry_if(mut self, choose: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.policy.retry_if = Arc::new(choose);
        self
    }

    /// Retries also when something was said already. It is taken back by a
    /// [`Retracted`](crate::TurnEvent::Retracted) as soon as the attempt has failed, before the wait.
    ///
    /// Without this, words are never taken back: the error of the attempt is returned.
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
            // A first attempt that needs another connection has not failed.
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

/// Attempts by the provider below.
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

/// Whether the server had closed the connection.
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
