//! This crate's error type.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[cfg(feature = "http")]
use crate::error::redacted_source::RedactedSource;
use crate::error::source_chain::{MAX_SOURCES, format_source_chain};
use crate::error::{AuthProblem, ContextLimits, ErrorKind, RateLimitScope};

/// An error from this crate. Errors are cheap to clone.
///
/// The message is a single line and never contains an API key. Details that only some errors
/// contain are available through getters. An error serializes to a flat JSON object. The error's
/// [source](StdError::source) is neither serialized nor compared by `==`.
///
/// ```
/// use turnstream::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::RateLimited, "too many requests").with_status(429);
/// assert_eq!(error.kind(), ErrorKind::RateLimited);
/// assert_eq!(error.to_string(), "too many requests");
/// assert_eq!(error.status(), Some(429));
/// ```
#[derive(Clone)]
pub struct Error(Arc<ErrorFields>);

#[derive(Clone)]
struct ErrorFields {
    data: ErrorData,
    flags: ErrorFlags,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// An error whose message names the causes of this error, among others. Reports contain it in
    /// place of the source.
    overview: Option<Arc<dyn StdError + Send + Sync>>,
}

/// Properties of an error that are not displayed, serialized or compared.
#[derive(Clone, Copy, Default)]
struct ErrorFlags {
    /// Whether a layer that can retract output has already retried the request and has given up.
    are_retries_exhausted: bool,
    /// Whether the error was parsed from a response body.
    is_server_message: bool,
    /// Whether no byte of the request was sent.
    is_unsent: bool,
}

/// The part of an error that is serialized.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ErrorData {
    kind: ErrorKind,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<RateLimitScope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    auth: Option<AuthProblem>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context_limits: Option<ContextLimits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
}

impl Error {
    /// Creates an error of the given kind. By convention, the message is a lowercase fragment
    /// without a trailing period.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(ErrorFields {
            data: ErrorData {
                kind,
                message: message.into(),
                status: None,
                retry_after_ms: None,
                request_id: None,
                parameter: None,
                scope: None,
                auth: None,
                context_limits: None,
                retryable: None,
            },
            flags: ErrorFlags::default(),
            source: None,
            overview: None,
        }))
    }

    /// Sets an error whose message contains everything that a report must say about the causes of
    /// this error. [`find_source`](Self::find_source) still visits the error's source.
    pub(crate) fn with_overview(mut self, overview: impl StdError + Send + Sync + 'static) -> Self {
        self.fields_mut().overview = Some(Arc::new(overview));
        self
    }

    /// Sets the error's source, which replaces an earlier one. Callers find it with
    /// [`find_source`](Self::find_source).
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.fields_mut().source = Some(Arc::new(source));
        self
    }

    /// Sets the HTTP status code of the response that the error describes, for example 429.
    pub fn with_status(mut self, status: u16) -> Self {
        self.fields_mut().data.status = Some(status);
        self
    }

    /// Sets how long the provider asked the client to wait before retrying.
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.fields_mut().data.retry_after_ms = Some(millis);
        self
    }

    /// Sets the id that the provider assigned to the request.
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.fields_mut().data.request_id = Some(id.into());
        self
    }

    /// Sets the name of the parameter that the provider rejected.
    pub fn with_parameter(mut self, name: impl Into<String>) -> Self {
        self.fields_mut().data.parameter = Some(name.into());
        self
    }

    /// Sets which rate limit was exceeded.
    pub(crate) fn with_rate_limit_scope(mut self, scope: RateLimitScope) -> Self {
        self.fields_mut().data.scope = Some(scope);
        self
    }

    /// Sets the reason why authentication failed.
    pub fn with_auth_problem(mut self, problem: AuthProblem) -> Self {
        self.fields_mut().data.auth = Some(problem);
        self
    }

    /// Sets the size of the request and the size of the context window that it exceeds.
    pub fn with_context_limits(mut self, limits: ContextLimits) -> Self {
        self.fields_mut().data.context_limits = Some(limits);
        self
    }

    /// Sets whether the provider said that a retry may succeed. This value overrides the default
    /// for the error's kind.
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.fields_mut().data.retryable = Some(retryable);
        self
    }

    /// Returns the error's kind, which lets the caller decide how to react.
    pub fn kind(&self) -> ErrorKind {
        self.0.data.kind
    }

    /// Returns a one-line, human-readable message. `to_string()` returns the same message.
    pub fn message(&self) -> &str {
        &self.0.data.message
    }

    /// Returns the HTTP status code, if there was a response.
    pub fn status(&self) -> Option<u16> {
        self.0.data.status
    }

    /// Returns how long the provider asked the client to wait before retrying, if the provider
    /// specified a delay.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.data.retry_after_ms.map(Duration::from_millis)
    }

    /// Returns the id that the provider assigned to the request, if any. Include the id when you
    /// contact the provider's support.
    pub fn request_id(&self) -> Option<&str> {
        self.0.data.request_id.as_deref()
    }

    /// Returns the option or parameter at fault, or the id of the call at fault, if known.
    pub fn parameter(&self) -> Option<&str> {
        self.0.data.parameter.as_deref()
    }

    /// Returns which rate limit was exceeded, if this is a [`RateLimited`](ErrorKind::RateLimited)
    /// error and the provider reported the limit.
    pub fn rate_limit_scope(&self) -> Option<RateLimitScope> {
        self.0.data.scope
    }

    /// Returns the reason why authentication failed, if this is an [`Auth`](ErrorKind::Auth) error
    /// and the reason is known.
    pub fn auth_problem(&self) -> Option<AuthProblem> {
        self.0.data.auth
    }

    /// Returns the size of the request and the size of the context window that it exceeds, if this
    /// is a [`ContextWindow`](ErrorKind::ContextWindow) error and the provider reported the sizes.
    pub fn context_limits(&self) -> Option<ContextLimits> {
        self.0.data.context_limits
    }

    /// Returns whether the same request may succeed if it is sent again later.
    ///
    /// If the provider said whether a retry may succeed ([`with_retryable`](Self::with_retryable)),
    /// the provider's answer takes precedence. Otherwise, the result depends on the error's kind:
    /// connection errors, timeouts, rate limits, overloaded or failing servers, failed
    /// generations and incomplete turns may be temporary. A request that is larger than the entire
    /// allowance ([`RateLimitScope::RequestSize`]) can never succeed.
    ///
    /// The result does not take into account whether a consumer has already seen part of the
    /// answer. [`retry_after`](Self::retry_after) returns how long to wait before retrying, if the
    /// provider specified a delay.
    pub fn is_retryable(&self) -> bool {
        let fits = self.rate_limit_scope() != Some(RateLimitScope::RequestSize);
        self.0.data.retryable.unwrap_or_else(|| self.kind().is_transient() && fits)
    }

    /// Returns whether, according to the provider, a retry may succeed, or `None` if the provider
    /// did not say.
    #[cfg(feature = "http")]
    pub(crate) fn retryable_override(&self) -> Option<bool> {
        self.0.data.retryable
    }

    /// Returns the first error of type `T` in the chain of sources, if any.
    pub fn find_source<T: StdError + 'static>(&self) -> Option<&T> {
        let sources = source_chain(self).flat_map(overview_and_source).flatten();
        sources.into_iter().find_map(|source| source.downcast_ref())
    }

    /// Returns the error's source, even if the error's message repeats the source's message.
    pub(crate) fn direct_source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }

    fn overview(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.overview.as_deref().map(|overview| overview as &(dyn StdError + 'static))
    }

    /// Applies `f` to all of the error's strings, any of which may come from a server. If `f`
    /// changes the message of a source, the source is replaced with the changed message.
    #[cfg(feature = "http")]
    pub(crate) fn map_text_and_sources(mut self, f: impl Fn(&str) -> String) -> Self {
        if let Some(source) =
            self.0.source.as_deref().and_then(|of| RedactedSource::from_chain(source_chain(of), &f))
        {
            self = self.with_source(source);
        }
        self.map_text(f)
    }

    /// Applies `f` to the error's own strings, but not to its sources.
    #[cfg(feature = "http")]
    pub(crate) fn map_text(mut self, f: impl Fn(&str) -> String) -> Self {
        let shown = &mut self.fields_mut().data;
        shown.message = f(&shown.message);
        shown.request_id = shown.request_id.as_deref().map(&f);
        shown.parameter = shown.parameter.as_deref().map(&f);
        self
    }

    /// Prepends `context` to the error's message.
    pub(crate) fn with_context(mut self, context: &str) -> Self {
        let message = &mut self.fields_mut().data.message;
        *message = format!("{context}: {message}");
        self
    }

    /// Records that a layer that can retract output has already retried the request that caused the
    /// error.
    pub(crate) fn mark_retries_exhausted(mut self) -> Self {
        self.fields_mut().flags.are_retries_exhausted = true;
        self
    }

    /// Returns whether a lower layer that can retract output has already retried the request.
    pub(crate) fn are_retries_exhausted(&self) -> bool {
        self.0.flags.are_retries_exhausted
    }

    /// Records that the error was parsed from a response body.
    pub(crate) fn mark_as_server_message(mut self) -> Self {
        self.fields_mut().flags.is_server_message = true;
        self
    }

    /// Returns whether the error was parsed from a response body.
    #[cfg(feature = "http")]
    pub(crate) fn is_server_message(&self) -> bool {
        self.0.flags.is_server_message
    }

    /// Marks an error that occurred before any byte of the request was sent.
    #[cfg(feature = "http")]
    pub(crate) fn mark_unsent(mut self) -> Self {
        self.fields_mut().flags.is_unsent = true;
        self
    }

    /// Returns whether no byte of the request was sent.
    pub(crate) fn is_unsent(&self) -> bool {
        self.0.flags.is_unsent
    }

    /// Returns whether the server refused the request before it processed any of it: with a status
    /// from 400 to 499, other than 408 (the server waited too long) and 409 (a conflict).
    pub(crate) fn is_refusal(&self) -> bool {
        self.status()
            .is_some_and(|status| matches!(status, 400..500) && status != 408 && status != 409)
    }

    /// Removes the error's source, leaving only plain data.
    pub(crate) fn without_source(mut self) -> Self {
        let fields = self.fields_mut();
        (fields.source, fields.overview) = (None, None);
        self
    }

    /// Replaces the error's source with the result of calling `f` with it.
    pub(crate) fn map_source<S: StdError + Send + Sync + 'static>(
        mut self,
        f: impl FnOnce(Option<Arc<dyn StdError + Send + Sync>>) -> S,
    ) -> Self {
        let inner = self.fields_mut();
        inner.source = Some(Arc::new(f(inner.source.take())));
        self
    }

    /// Creates an error from a panic message.
    pub(crate) fn from_panic(place: &str, message: &str) -> Self {
        Self::new(ErrorKind::Panic, format!("{place} panicked: {message}"))
    }

    fn fields_mut(&mut self) -> &mut ErrorFields {
        Arc::make_mut(&mut self.0)
    }
}

/// Writes the error's message. The alternate form, `{error:#}`, appends the messages of all
/// sources, each after a colon. A source is omitted if the text built so far already ends with the
/// message of that source.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.alternate() {
            true => f.write_str(&format_source_chain(self)),
            false => f.write_str(self.message()),
        }
    }
}

/// Writes a single human-readable line. This is the form in which a `main` function that returns
/// `Result<(), turnstream::Error>` prints errors. The line contains the message, followed by the
/// kind and the details of the response in parentheses. The alternate form, `{error:#?}`, shows all
/// fields and the source.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0.data;
        if !f.alternate() {
            let words: Vec<&str> = shown.message.split_whitespace().collect();
            write!(f, "{} ({}", words.join(" "), shown.kind)?;
            if let Some(status) = shown.status {
                write!(f, ", status {status}")?;
            }
            if let Some(name) = &shown.parameter {
                write!(f, ", parameter {name}")?;
            }
            if let Some(wait) = self.retry_after() {
                write!(f, ", retry after {wait:?}")?;
            }
            if let Some(id) = &shown.request_id {
                write!(f, ", request {id}")?;
            }
            return f.write_str(")");
        }
        let mut out = f.debug_struct("Error");
        out.field("kind", &shown.kind).field("message", &shown.message);
        if let Some(status) = shown.status {
            out.field("status", &status);
        }
        if let Some(wait) = shown.retry_after_ms {
            out.field("retry_after_ms", &wait);
        }
        if let Some(id) = &shown.request_id {
            out.field("request_id", id);
        }
        if let Some(name) = &shown.parameter {
            out.field("parameter", name);
        }
        if let Some(scope) = &shown.scope {
            out.field("scope", scope);
        }
        if let Some(problem) = &shown.auth {
            out.field("auth", problem);
        }
        if let Some(limits) = &shown.context_limits {
            out.field("context_limits", limits);
        }
        if let Some(retryable) = &shown.retryable {
            out.field("retryable", retryable);
        }
        if let Some(source) = &self.0.source {
            out.field("source", source);
        }
        if let Some(overview) = &self.0.overview {
            out.field("overview", overview);
        }
        out.finish()
    }
}

/// Returns an iterator over an error, its source, the source's source, and so on, including sources
/// that [`Error`] does not return because its message repeats them.
pub(crate) fn source_chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> + Clone {
    std::iter::successors(Some(error), |&error| overview_and_source(error)[1])
}

/// Returns the overview, which only an [`Error`] may have, and the source of an error.
fn overview_and_source<'a>(
    error: &'a (dyn StdError + 'static),
) -> [Option<&'a (dyn StdError + 'static)>; 2] {
    match error.downcast_ref::<Error>() {
        Some(error) => [error.overview(), error.direct_source()],
        None => [None, error.source()],
    }
}

/// Returns the first source whose message is not part of the error's own message. Many messages end
/// with the message of a source, such as "could not connect: connection refused". Reports that join
/// the messages of all sources would otherwise contain that text twice.
fn unrepeated_source(error: &Error) -> Option<&(dyn StdError + 'static)> {
    let sources: Vec<_> = source_chain(error).skip(1).take(MAX_SOURCES).collect();
    let is_repeated =
        |source: &&(dyn StdError + 'static)| error.message().ends_with(source.to_string().as_str());
    match sources.iter().rposition(is_repeated) {
        Some(at) => sources.get(at + 1).copied(),
        None => sources.first().copied(),
    }
}

impl StdError for Error {
    /// Returns the first source whose message the error's own [message](Error::message) does not
    /// repeat. To look for a source of a certain type, use [`find_source`](Error::find_source),
    /// which visits all sources.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.overview().or_else(|| unrepeated_source(self))
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.0.data == other.0.data
    }
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.data.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let shown = ErrorData::deserialize(deserializer)?;
        let fields =
            ErrorFields { data: shown, flags: ErrorFlags::default(), source: None, overview: None };
        Ok(Self(Arc::new(fields)))
    }
}
