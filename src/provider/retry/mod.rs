//! A provider that asks again.

mod backoff;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::Sleep;

pub use backoff::Backoff;

use crate::env::{Random, SystemRandom};
use crate::error::Error;
use crate::provider::Provider;
use crate::provider::attempt::Attempt;
use crate::request::Request;
use crate::stream::{TurnSource, TurnStream, seal};
use crate::turn::TurnBuilder;

/// A provider that sends a request again when it failed for a reason that may pass.
///
/// It asks again behind errors of the kinds `connect`, `timeout`, `rate_limited`, `overloaded`,
/// `server`, `generation_failed` and `incomplete_turn`, or those that [`retry_if`](Self::retry_if)
/// chooses; so often and behind such waits as [`Backoff`] says. The request is the same each time.
/// The error of the last try is given as it is. Each try has the whole of the time that the
/// provider below gives a turn.
///
/// It asks again only while nothing was said, unless [`with_retraction`](Self::with_retraction)
/// allows more, and never behind `TurnComplete`. A count of tokens does not stand in the way:
/// what a try has counted is handed to the run by [`Retracted`](crate::TurnEvent::Retracted), so
/// that void tries are paid for once and not taken for words.
///
/// A request that was not answered may still have been worked on, and paid for: behind `connect`,
/// `timeout` and `incomplete_turn` nobody can know. No key that would tell the provider of it is
/// sent.
///
/// Dropping the stream cancels the try that runs or the wait; nothing is sent afterwards. Clones
/// share the provider below.
///
/// ```
/// use turnstream::provider::{Provider, Reply, Retry, Scripted};
/// use turnstream::stream::TurnEvents;
/// use turnstream::{Error, ErrorKind, History, Request, env::SystemIds};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let busy = || Error::new(ErrorKind::Overloaded, "busy");
/// let model = Scripted::new([Reply::error(busy()), Reply::error(busy()), Reply::text("Hello!")]);
/// let patient = Retry::new(model.clone());
/// let turn = patient.stream_turn(Request::new(History::new(&SystemIds))).into_turn().await?;
/// assert_eq!(turn.text(), "Hello!");
/// assert_eq!(model.requests().len(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Retry {
    provider: Arc<dyn Provider>,
    policy: Arc<Policy>,
}

#[derive(Clone)]
struct Policy {
    backoff: Backoff,
    random: Arc<dyn Random>,
    /// `None` is what [`Error::is_retryable`] says.
    retry_if: Option<Arc<Choice>>,
    retracts: bool,
}

type Choice = dyn Fn(&Error) -> bool + Send + Sync;

impl Retry {
    /// Asks again with the default [`Backoff`].
    pub fn new(provider: impl Provider + 'static) -> Self {
        let policy = Policy {
            backoff: Backoff::default(),
            random: Arc::new(SystemRandom),
            retry_if: None,
            retracts: false,
        };
        Self { provider: Arc::new(provider), policy: Arc::new(policy) }
    }

    /// Sets how often to ask, and how long to wait in between.
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.policy().backoff = backoff;
        self
    }

    /// Sets where the jitter comes from.
    pub fn with_random(mut self, random: impl Random + 'static) -> Self {
        self.policy().random = Arc::new(random);
        self
    }

    /// Asks again behind the errors for which this is true, and behind no others.
    pub fn retry_if(mut self, choose: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.policy().retry_if = Some(Arc::new(choose));
        self
    }

    /// Asks again also when something was said already. It is taken back by a
    /// [`Retracted`](crate::TurnEvent::Retracted) as soon as the try has failed, before the wait.
    ///
    /// Without this, words are never taken back: the error of the try is given.
    pub fn with_retraction(mut self) -> Self {
        self.policy().retracts = true;
        self
    }

    fn policy(&mut self) -> &mut Policy {
        Arc::make_mut(&mut self.policy)
    }
}

impl Provider for Retry {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let history = request.history.clone();
        let stage = Stage::Next;
        seal(&history, Retrying { retry: self.clone(), request, failed: 0, stage })
    }

    fn model(&self) -> &str {
        self.provider.model()
    }
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

/// One turn, tried again and again.
struct Retrying {
    retry: Retry,
    request: Request,
    failed: u32,
    stage: Stage,
}

enum Stage {
    Next,
    Trying(Attempt),
    Waiting(Pin<Box<Sleep>>),
}

impl TurnSource for Retrying {
    fn poll_turn(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> Poll<Option<Result<(), Error>>> {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                Stage::Next => {
                    let attempt = Attempt::new(&*this.retry.provider, this.request.clone());
                    this.stage = Stage::Trying(attempt);
                }
                Stage::Waiting(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    this.stage = Stage::Next;
                }
                Stage::Trying(attempt) => match ready!(attempt.poll(cx, turn)) {
                    Some(Err(error)) => {
                        this.failed = this.failed.saturating_add(1);
                        let Some(wait) = this.retry.wait(this.failed, attempt, &error) else {
                            return Poll::Ready(Some(Err(error)));
                        };
                        let waiting = Stage::Waiting(Box::pin(tokio::time::sleep(wait)));
                        if let Stage::Trying(failed) = std::mem::replace(&mut this.stage, waiting) {
                            failed.void(&error, turn);
                        }
                        if turn.has_events() {
                            return Poll::Ready(Some(Ok(())));
                        }
                    }
                    pushed => return Poll::Ready(pushed),
                },
            }
        }
    }
}

impl Retry {
    /// How long to wait before the next try; `None` if there is none.
    fn wait(&self, failed: u32, attempt: &Attempt, error: &Error) -> Option<std::time::Duration> {
        let policy = &*self.policy;
        let chosen = match &policy.retry_if {
            Some(choose) => choose(error),
            None => error.is_retryable(),
        };
        if !chosen || (attempt.has_said() && !policy.retracts) {
            return None;
        }
        policy.backoff.wait(failed, error.retry_after(), &*policy.random)
    }
}
