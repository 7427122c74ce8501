//! A provider that falls back to other providers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;

use crate::error::Error;
use crate::item::Part;
use crate::provider::Provider;
use crate::provider::wrap::should_fall_back::{self, ErrorPredicate};
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream, seal};
use crate::turn::TurnBuilder;

/// Sends each request to a chain of providers: if a provider fails, the request is sent to the next
/// provider.
///
/// The chain falls back after errors that another provider might not return. By default, an error
/// of one of these kinds causes a fallback: `connect`, `timeout`, `auth`, `billing`,
/// `rate_limited`, `overloaded`, `server`, `generation_failed`, `context_window`,
/// `incomplete_turn`, `protocol` or `too_large`. To select other errors, use
/// [`fall_back_if`](Self::fall_back_if). An error in the request itself is returned immediately.
///
/// The chain falls back without a delay. Only the last provider waits and retries, unless
/// [`retrying_first`](Self::retrying_first) is set. Every provider still retries after errors that
/// do not cause a fallback. Every provider still replaces an idle connection that the server has
/// closed, but only once.
///
/// Before a fallback, the failed provider's output is retracted by a
/// [`Retracted`](crate::TurnEvent::Retracted) event, which also reports that provider's token
/// usage. Each turn starts with the first provider. To skip the first provider while it is down,
/// wrap it in a [`CircuitBreaker`](crate::provider::CircuitBreaker).
///
/// - [`model`](Provider::model) returns the first provider's model.
/// - If a request names a model ([`Request::model`]), only the first provider uses that model; the
///   others use their own models.
/// - Each provider's encoder drops or downgrades history items that are bound to another model, for
///   example by a signature; see [`handoff`](crate::provider::handoff()).
/// - If all providers fail, the last provider's error is returned. The error's source is a
///   [`FallbackFailure`], which lists all of the errors.
///
/// Dropping the stream cancels the turn, and no further provider is called. Clones share the same
/// providers.
///
/// An agent has a fallback of its own, [`Agent::with_fallback`](crate::Agent::with_fallback): the
/// run keeps using the other provider until it ends, and the change is a transition of the run. Use
/// `Fallback` without an agent, if each turn should start with the first provider, or to choose the
/// errors that cause a fallback.
///
/// ```
/// use turnstream::provider::{Fallback, Provider, Reply, Scripted};
/// use turnstream::stream::TurnStreamExt;
/// use turnstream::{Error, ErrorKind, History, Request, env::SystemIds};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let down = Scripted::new([Reply::error(Error::new(ErrorKind::Overloaded, "busy"))]);
/// let model = Fallback::new(down).or(Scripted::new(["Hello!"]));
/// let turn = model.stream_turn(Request::new(History::new(&SystemIds))).into_turn().await?;
/// assert_eq!(turn.text(), "Hello!");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fallback {
    /// The providers in the chain. Invariant: the list is not empty.
    providers: Arc<[Arc<dyn Provider>]>,
    should_fall_back: Arc<ErrorPredicate>,
    /// Whether a provider retries before the chain falls back to the next provider.
    retries_first: bool,
}

impl Fallback {
    /// Creates a chain with a single provider, to which [`or`](Self::or) adds others. Requests that
    /// name no model are sent to each provider's own model.
    pub fn new(first: impl Provider + 'static) -> Self {
        let on = Arc::new(|error: &Error| should_fall_back::should_fall_back(error.kind()));
        Self { providers: Arc::new([Arc::new(first)]), should_fall_back: on, retries_first: false }
    }

    /// Adds a provider to call if all earlier providers have failed.
    pub fn or(mut self, next: impl Provider + 'static) -> Self {
        let next: Arc<dyn Provider> = Arc::new(next);
        self.providers = self.providers.iter().cloned().chain([next]).collect();
        self
    }

    /// Replaces the default rule for when to fall back: the chain falls back after an error only if
    /// `choose` returns true for that error.
    pub fn fall_back_if(mut self, choose: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        self.should_fall_back = Arc::new(choose);
        self
    }

    /// Lets every provider retry before the chain falls back. By default, only the last provider
    /// retries.
    pub fn retrying_first(mut self) -> Self {
        self.retries_first = true;
        self
    }
}

impl Provider for Fallback {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let turn = TurnBuilder::from(&request);
        let fallback = self.clone();
        seal(turn, FallbackTurn { fallback, request, attempt: None, errors: Vec::new() })
    }

    fn model(&self) -> &str {
        self.providers[0].model()
    }

    fn has_tool_search(&self) -> bool {
        self.providers.iter().all(Provider::has_tool_search)
    }

    /// Counts with the first provider, which is the first to receive the request.
    fn count_tokens(&self, request: &Request) -> Option<BoxFuture<'static, Result<u64, Error>>> {
        self.providers[0].count_tokens(request)
    }

    /// Checks the parts with the first provider and, if the chain falls back after its error, with
    /// the next one.
    fn check_parts(&self, parts: &[Part]) -> Result<(), Error> {
        let mut checked = Ok(());
        for provider in &*self.providers {
            checked = provider.check_parts(parts);
            if !checked.as_ref().is_err_and(|error| (self.should_fall_back)(error)) {
                break;
            }
        }
        checked
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models: Vec<&str> = self.providers.iter().map(Provider::model).collect();
        f.debug_struct("Fallback").field("models", &models).finish_non_exhaustive()
    }
}

/// A turn that falls back to the next provider in the chain when a provider fails.
struct FallbackTurn {
    fallback: Fallback,
    request: Request,
    /// The current provider's turn, or `None` if it has not started yet.
    attempt: Option<TurnStream>,
    /// The model name and the error of each provider that has failed.
    errors: Vec<(String, Error)>,
}

impl FallbackTurn {
    /// Returns the request for the provider at index `at`.
    fn request_for(&self, at: usize) -> Request {
        let mut request = self.request.clone();
        if self.fallback.providers.len() > at + 1 && !self.fallback.retries_first {
            let should_fall_back = Arc::clone(&self.fallback.should_fall_back);
            request.retries = request.retries.with_exception(move |error| should_fall_back(error));
        }
        request
    }
}

impl TurnSource for FallbackTurn {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let this = self.get_mut();
        loop {
            let Some(provider) = this.fallback.providers.get(this.errors.len()) else {
                return Poll::Ready(None);
            };
            let Some(attempt) = &mut this.attempt else {
                let request = this.request_for(this.errors.len());
                this.attempt = Some(provider.stream_turn(request));
                continue;
            };
            let error = match ready!(Pin::new(attempt).poll_turn(cx, turn)) {
                Some(Err(error)) => error,
                pushed => return Poll::Ready(pushed),
            };
            let model = this.request.model.take().unwrap_or_else(|| provider.model().to_owned());
            this.errors.push((model, error.clone()));
            let next = this.fallback.providers.get(this.errors.len());
            // A model that receives the same approval would run the approved call again.
            let would_repeat = next.is_some_and(|next| next.model() == provider.model())
                && !this.request.allowed_retries().may_repeat_after(&error);
            let should_fall_back = (this.fallback.should_fall_back)(&error) && !would_repeat;
            if !should_fall_back || next.is_none() {
                let failed = std::mem::take(&mut this.errors);
                return Poll::Ready(Some(Err(FallbackFailure::attach_to(error, failed))));
            }
            this.attempt = None;
            turn.retract_failed_attempt(&error);
            if turn.has_events() {
                return Poll::Ready(Some(Ok(())));
            }
        }
    }

    fn describe(&self, turn: &mut TurnBuilder) {
        if let Some(attempt) = &self.attempt {
            attempt.describe(turn);
        }
    }
}

/// The errors from all providers that a [`Fallback`] called for a single request.
///
/// If more than one provider was called, a `FallbackFailure` is the source of the last provider's
/// error. Its message states the causes of the last error and then the earlier errors, so that a
/// report such as `{error:#}` contains every error together with its own causes.
/// [`Error::find_source`] also finds the original sources of the last error.
///
/// ```
/// use turnstream::provider::{Fallback, FallbackFailure, Provider, Reply, Scripted};
/// use turnstream::stream::TurnStreamExt;
/// use turnstream::{Error, ErrorKind, History, Request, env::SystemIds};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let fails = |kind| Scripted::new([Reply::error(Error::new(kind, "no"))]);
/// let model = Fallback::new(fails(ErrorKind::Overloaded)).or(fails(ErrorKind::Billing));
/// let request = Request::new(History::new(&SystemIds));
/// let error = model.stream_turn(request).into_turn().await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Billing);
/// let all = error.find_source::<FallbackFailure>().unwrap();
/// assert_eq!(all.errors().next().unwrap().1.kind(), ErrorKind::Overloaded);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FallbackFailure {
    errors: Vec<(String, Error)>,
}

impl FallbackFailure {
    /// Returns the model name and the error of each provider that was called, in order.
    pub fn errors(&self) -> impl Iterator<Item = (&str, &Error)> {
        self.errors.iter().map(|(model, error)| (model.as_str(), error))
    }

    fn attach_to(error: Error, failed: Vec<(String, Error)>) -> Error {
        match failed.len() {
            0 | 1 => error,
            _ => error.with_overview(Self { errors: failed }),
        }
    }
}

impl fmt::Display for FallbackFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A report contains the message of the last error before this text.
        let Some(((_, last), earlier)) = self.errors.split_last() else { return Ok(()) };
        let report = format!("{last:#}");
        let causes = report.strip_prefix(last.message()).unwrap_or_default();
        if let Some(causes) = causes.strip_prefix(": ") {
            write!(f, "{causes}; ")?;
        }
        f.write_str("before that, other providers failed")?;
        for (at, (model, error)) in earlier.iter().enumerate() {
            write!(f, "{} {model}: {error:#}", if at == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl std::error::Error for FallbackFailure {}
