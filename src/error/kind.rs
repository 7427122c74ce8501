//! What a caller can act on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// No connection could be made, or it broke before the answer had begun. Whether the provider
    /// got the request is not known in the latter case.
    Connect,
    /// Nothing came in time; see [`Timeouts`](crate::http::Timeouts). In the middle of a turn its
    /// source is a [`PartialTurn`](crate::turn::PartialTurn).
    Timeout,
    /// The key is missing, wrong, or not allowed to do this; [`Error::auth_problem`](super::Error::auth_problem)
    /// may say which.
    Auth,
    /// The account cannot pay.
    Billing,
    /// Too many requests or tokens. [`Error::retry_after`](super::Error::retry_after) may say when
    /// to come back, [`Error::rate_limit_scope`](super::Error::rate_limit_scope) what there was too much of.
    RateLimited,
    /// The provider has no room at the moment.
    Overloaded,
    /// The provider failed.
    Server,
    /// The request does not fit the model's context window;
    /// [`Error::context_limits`](super::Error::context_limits) may say by how much.
    ContextWindow,
    /// The provider refuses the request as it is; sending it again will not help.
    InvalidRequest,
    /// The wire, the model or the store cannot do what was asked for.
    Unsupported,
    /// The provider's filter refused the request.
    Filtered,
    /// The model's own generation broke off, for example in a call that is none. The request was
    /// fine; asking again may give another answer.
    GenerationFailed,
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
    /// A hook failed or took too long. It ends a run unless the hook only observes.
    Hook,
    /// Code that was handed in panicked.
    Panic,
    /// A store failed.
    Store,
    /// Somebody else wrote first.
    Conflict,
    /// A replay did something else than what was recorded; its source is a
    /// [`ReplayMismatch`](crate::replay::ReplayMismatch) or a
    /// [`RequestMismatch`](crate::provider::RequestMismatch).
    ReplayMismatch,
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
            Self::GenerationFailed => "generation_failed",
            Self::IncompleteTurn => "incomplete_turn",
            Self::Malformed => "malformed",
            Self::Protocol => "protocol",
            Self::TooLarge => "too_large",
            Self::Hook => "hook",
            Self::Panic => "panic",
            Self::Store => "store",
            Self::Conflict => "conflict",
            Self::ReplayMismatch => "replay_mismatch",
            Self::Unfinished => "unfinished",
            Self::Other => "other",
        }
    }

    /// Whether what went wrong may pass by itself, so that the same request, sent again later, may
    /// succeed. [`Error::is_retryable`](super::Error::is_retryable) knows more about one error.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Connect
            | Self::Timeout
            | Self::RateLimited
            | Self::Overloaded
            | Self::Server
            | Self::GenerationFailed
            | Self::IncompleteTurn => true,
            Self::Auth
            | Self::Billing
            | Self::ContextWindow
            | Self::InvalidRequest
            | Self::Unsupported
            | Self::Filtered
            | Self::Malformed
            | Self::Protocol
            | Self::TooLarge
            | Self::Hook
            | Self::Panic
            | Self::Store
            | Self::Conflict
            | Self::ReplayMismatch
            | Self::Unfinished
            | Self::Other => false,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
