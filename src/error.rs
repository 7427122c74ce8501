//! One error type. Its kind says what a caller can do, its source what happened.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    shown: Shown,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The part of an error that is data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Shown {
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
}

/// What a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// No connection could be made, or it broke before the answer had begun. Whether the provider
    /// got the request is not known in the latter case.
    Connect,
    /// Nothing came in time.
    Timeout,
    /// The key is missing, wrong, or not allowed to do this.
    Auth,
    /// The account cannot pay.
    Billing,
    /// Too many requests or tokens; [`Error::retry_after`] may say when to come back.
    RateLimited,
    /// The provider has no room at the moment.
    Overloaded,
    /// The provider failed.
    Server,
    /// The request does not fit the model's context window.
    ContextWindow,
    /// The provider refuses the request as it is; sending it again will not help.
    InvalidRequest,
    /// The wire or the model cannot express what was asked for.
    Unsupported,
    /// The provider's filter refused the request.
    Filtered,
    /// A turn ended without its terminal marker; its source is a
    /// [`PartialTurn`](crate::turn::PartialTurn).
    IncompleteTurn,
    /// The model's answer has not the form that was asked for; the source is a
    /// [`ParseError`](crate::turn::ParseError). Asking again may help.
    Malformed,
    /// The provider sent what its protocol does not allow.
    Protocol,
    /// Something was larger than a limit of this crate.
    TooLarge,
    /// A hook failed or took too long.
    Hook,
    /// Code that was handed in panicked.
    Panic,
    /// A store failed.
    Store,
    /// Somebody else wrote first.
    Conflict,
    /// A run ended in another way than `completed`; its source is the
    /// [`Outcome`](crate::event::Outcome).
    Unfinished,
    /// Anything else, and kinds of a later version.
    #[serde(other)]
    Other,
}

impl ErrorKind {
    /// Returns the kind as it is written on the wire, for example `rate_limited`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Auth => "auth",
            Self::Billing => "billing",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Server => "server",
            Self::ContextWindow => "context_window",
            Self::InvalidRequest => "invalid_request",
            Self::Unsupported => "unsupported",
            Self::Filtered => "filtered",
            Self::IncompleteTurn => "incomplete_turn",
            Self::Malformed => "malformed",
            Self::Protocol => "protocol",
            Self::TooLarge => "too_large",
            Self::Hook => "hook",
            Self::Panic => "panic",
            Self::Store => "store",
            Self::Conflict => "conflict",
            Self::Unfinished => "unfinished",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    /// Makes an error of a kind. The message is a lower-case fragment without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            shown: Shown {
                kind,
                message: message.into(),
                status: None,
                retry_after_ms: None,
                request_id: None,
                parameter: None,
            },
            source: None,
        }))
    }

    /// Adds what caused it.
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.inner().source = Some(Arc::new(source));
        self
    }

    /// Adds the HTTP status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.inner().shown.status = Some(status);
        self
    }

    /// Adds how long the provider asked to wait.
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.inner().shown.retry_after_ms = Some(millis);
        self
    }

    /// Adds the provider's id of the request.
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.inner().shown.request_id = Some(id.into());
        self
    }

    /// Adds the name of the parameter that the provider objects to.
    pub fn with_parameter(mut self, name: impl Into<String>) -> Self {
        self.inner().shown.parameter = Some(name.into());
        self
    }

    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        self.0.shown.kind
    }

    /// One line for a person, the same as `to_string()`.
    pub fn message(&self) -> &str {
        &self.0.shown.message
    }

    /// The HTTP status, where there was one.
    pub fn status(&self) -> Option<u16> {
        self.0.shown.status
    }

    /// How long the provider asked to wait before the next try.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.shown.retry_after_ms.map(Duration::from_millis)
    }

    /// The provider's id of the request, for its support.
    pub fn request_id(&self) -> Option<&str> {
        self.0.shown.request_id.as_deref()
    }

    /// The parameter that the provider objects to.
    pub fn parameter(&self) -> Option<&str> {
        self.0.shown.parameter.as_deref()
    }

    /// Returns the first source of type `T` in the chain of sources.
    pub fn find_source<T: StdError + 'static>(&self) -> Option<&T> {
        let mut source = self.source();
        while let Some(error) = source {
            if let Some(found) = error.downcast_ref::<T>() {
                return Some(found);
            }
            source = error.source();
        }
        None
    }

    /// The same with its texts, all that a server may have written, passed through `f`.
    #[cfg(feature = "http")]
    pub(crate) fn rewritten(mut self, f: impl Fn(&str) -> String) -> Self {
        let shown = &mut self.inner().shown;
        shown.message = f(&shown.message);
        shown.request_id = shown.request_id.as_deref().map(&f);
        shown.parameter = shown.parameter.as_deref().map(&f);
        self
    }

    /// Makes an error of what a panic was called with.
    pub(crate) fn panic(place: &str, payload: &(dyn std::any::Any + Send)) -> Self {
        Self::new(ErrorKind::Panic, format!("{place} panicked: {}", panic_message(payload)))
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }
}

/// The text a panic was called with, where it was called with one.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0.shown;
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
        self.0.shown == other.0.shown
    }
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.shown.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let shown = Shown::deserialize(deserializer)?;
        Ok(Self(Arc::new(Inner { shown, source: None })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_back_as_it_was_written() {
        let error = Error::new(ErrorKind::RateLimited, "slow down")
            .with_status(429)
            .with_retry_after(Duration::from_secs(1))
            .with_request_id("req_1");
        let json = serde_json::to_string(&error).unwrap();
        assert_eq!(
            json,
            r#"{"kind":"rate_limited","message":"slow down","status":429,"retry_after_ms":1000,"request_id":"req_1"}"#
        );
        assert_eq!(serde_json::from_str::<Error>(&json).unwrap(), error);
    }

    #[test]
    fn a_kind_of_a_later_version_is_other() {
        let error: Error = serde_json::from_str(r#"{"kind":"moon_phase","message":"m"}"#).unwrap();
        assert_eq!(error.kind(), ErrorKind::Other);
    }

    #[test]
    fn every_kind_is_named_as_it_is_serialised() {
        for kind in [ErrorKind::Connect, ErrorKind::IncompleteTurn, ErrorKind::TooLarge] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }

    #[test]
    fn the_source_is_found_through_the_chain() {
        let inner = Error::new(ErrorKind::Connect, "inner");
        let middle = Error::new(ErrorKind::Other, "middle").with_source(std::fmt::Error);
        let outer = Error::new(ErrorKind::Server, "outer").with_source(middle.clone());
        assert_eq!(outer.find_source::<Error>(), Some(&middle));
        assert!(outer.find_source::<std::fmt::Error>().is_some());
        assert!(inner.find_source::<std::fmt::Error>().is_none());
    }
}
