//! The error.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[cfg(feature = "http")]
use crate::error::redacted_source::RedactedSource;
use crate::error::source_chain::{format_source_chain, source_chain};
use crate::error::{AuthProblem, ContextLimits, ErrorKind, RateLimitScope};

/// What went wrong, cheap to clone.
///
/// The message is one line and holds no key. Details that only some errors have are getters.
/// Serialised, it is the flat object that is printed as an `error` line; the
/// [source](StdError::source) is not part of it, and not of equality.
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
}

/// Facts about an error that are not shown, serialised or compared.
#[derive(Clone, Copy, Default)]
struct ErrorFlags {
    /// A layer that takes back what was said has tried again, and has given up.
    are_retries_exhausted: bool,
    /// It stood in the body of an answer.
    is_server_message: bool,
}

/// The part of an error that is data.
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
    /// Makes an error of a kind. The message is a lower-case fragment without a full stop.
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
        }))
    }

    /// Adds what caused it.
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.fields_mut().source = Some(Arc::new(source));
        self
    }

    /// Adds the HTTP status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.fields_mut().data.status = Some(status);
        self
    }

    /// Adds how long the provider asked to wait.
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.fields_mut().data.retry_after_ms = Some(millis);
        self
    }

    /// Adds the provider's id of the request.
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.fields_mut().data.request_id = Some(id.into());
        self
    }

    /// Adds the name of the parameter that the provider objects to.
    pub fn with_parameter(mut self, name: impl Into<String>) -> Self {
        self.fields_mut().data.parameter = Some(name.into());
        self
    }

    /// Adds what there was too much of.
    pub fn with_rate_limit_scope(mut self, scope: RateLimitScope) -> Self {
        self.fields_mut().data.scope = Some(scope);
        self
    }

    /// Adds what is wrong with the key.
    pub fn with_auth_problem(mut self, problem: AuthProblem) -> Self {
        self.fields_mut().data.auth = Some(problem);
        self
    }

    /// Adds by how much the request is too long.
    pub fn with_context_limits(mut self, limits: ContextLimits) -> Self {
        self.fields_mut().data.context_limits = Some(limits);
        self
    }

    /// Adds whether the provider wants to be asked again, whatever the kind makes of it.
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.fields_mut().data.retryable = Some(retryable);
        self
    }

    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        self.0.data.kind
    }

    /// One line for a person, the same as `to_string()`.
    pub fn message(&self) -> &str {
        &self.0.data.message
    }

    /// The HTTP status, where there was one.
    pub fn status(&self) -> Option<u16> {
        self.0.data.status
    }

    /// How long the provider asked to wait before the next try.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.data.retry_after_ms.map(Duration::from_millis)
    }

    /// The provider's id of the request, for its support.
    pub fn request_id(&self) -> Option<&str> {
        self.0.data.request_id.as_deref()
    }

    /// The parameter that the provider objects to.
    pub fn parameter(&self) -> Option<&str> {
        self.0.data.parameter.as_deref()
    }

    /// What there was too much of, if this is a [rate limit](ErrorKind::RateLimited) and the
    /// provider says so.
    pub fn rate_limit_scope(&self) -> Option<RateLimitScope> {
        self.0.data.scope
    }

    /// What is wrong with the key, if this is a matter of [keys](ErrorKind::Auth) and it is known.
    pub fn auth_problem(&self) -> Option<AuthProblem> {
        self.0.data.auth
    }

    /// By how much the request is too long, if it [is](ErrorKind::ContextWindow) and the provider
    /// gives numbers.
    pub fn context_limits(&self) -> Option<ContextLimits> {
        self.0.data.context_limits
    }

    /// Whether the same request, sent again later, may succeed.
    ///
    /// What the provider says about it counts first ([`with_retryable`](Self::with_retryable)),
    /// then whether the [kind](ErrorKind::is_transient) passes by itself. A request that is larger
    /// than the whole of an allowance ([`RateLimitScope::RequestSize`]) never fits it.
    ///
    /// It says nothing of whether a consumer has seen a part of the answer already, nor of when to
    /// come back: that is [`retry_after`](Self::retry_after), where the provider says so.
    pub fn is_retryable(&self) -> bool {
        let fits = self.rate_limit_scope() != Some(RateLimitScope::RequestSize);
        self.0.data.retryable.unwrap_or_else(|| self.kind().is_transient() && fits)
    }

    /// What the provider said about asking again, if it said so.
    #[cfg(feature = "http")]
    pub(crate) fn retryable_override(&self) -> Option<bool> {
        self.0.data.retryable
    }

    /// Returns the first source of type `T` in the chain of sources.
    pub fn find_source<T: StdError + 'static>(&self) -> Option<&T> {
        source_chain(self).skip(1).find_map(|source| source.downcast_ref())
    }

    /// The same with its texts, all that a server may have written, passed through `f`. Sources
    /// that `f` would change are replaced by what they show.
    #[cfg(feature = "http")]
    pub(crate) fn map_text_and_sources(mut self, f: impl Fn(&str) -> String) -> Self {
        if let Some(source) =
            self.0.source.as_deref().and_then(|of| RedactedSource::from_source(of, &f))
        {
            self = self.with_source(source);
        }
        self.map_text(f)
    }

    /// The same with its own texts, and not its sources, passed through `f`.
    #[cfg(feature = "http")]
    pub(crate) fn map_text(mut self, f: impl Fn(&str) -> String) -> Self {
        let shown = &mut self.fields_mut().data;
        shown.message = f(&shown.message);
        shown.request_id = shown.request_id.as_deref().map(&f);
        shown.parameter = shown.parameter.as_deref().map(&f);
        self
    }

    /// The same with `context` before its message.
    pub(crate) fn with_context(mut self, context: &str) -> Self {
        let message = &mut self.fields_mut().data.message;
        *message = format!("{context}: {message}");
        self
    }

    /// The same, returned by a layer that has tried again and takes back what was said.
    pub(crate) fn mark_retries_exhausted(mut self) -> Self {
        self.fields_mut().flags.are_retries_exhausted = true;
        self
    }

    /// Whether a layer below has tried again that takes back what was said.
    pub(crate) fn are_retries_exhausted(&self) -> bool {
        self.0.flags.are_retries_exhausted
    }

    /// The same, read in the body of an answer.
    pub(crate) fn mark_as_server_message(mut self) -> Self {
        self.fields_mut().flags.is_server_message = true;
        self
    }

    /// Whether it stood in the body of an answer.
    #[cfg(feature = "http")]
    pub(crate) fn is_server_message(&self) -> bool {
        self.0.flags.is_server_message
    }

    /// The same as data alone.
    pub(crate) fn without_source(mut self) -> Self {
        self.fields_mut().source = None;
        self
    }

    /// The same with another source, made of the one it has.
    pub(crate) fn map_source<S: StdError + Send + Sync + 'static>(
        mut self,
        f: impl FnOnce(Option<Arc<dyn StdError + Send + Sync>>) -> S,
    ) -> Self {
        let inner = self.fields_mut();
        inner.source = Some(Arc::new(f(inner.source.take())));
        self
    }

    /// Makes an error of the text that something panicked with.
    pub(crate) fn from_panic(place: &str, message: &str) -> Self {
        Self::new(ErrorKind::Panic, format!("{place} panicked: {message}"))
    }

    fn fields_mut(&mut self) -> &mut ErrorFields {
        Arc::make_mut(&mut self.0)
    }
}

/// The message. With `#`, as in `{error:#}`, the messages of its sources follow, each after a colon;
/// sources that the text ends with already are left out.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.alternate() {
            true => f.write_str(&format_source_chain(self)),
            false => f.write_str(self.message()),
        }
    }
}

/// One line for a person, as `fn main() -> Result<(), turnstream::Error>` prints it: the message,
/// then in brackets the kind and what is known of the answer. `{error:#?}` shows all fields and the
/// source.
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
        out.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
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
        Ok(Self(Arc::new(ErrorFields { data: shown, flags: ErrorFlags::default(), source: None })))
    }
}
