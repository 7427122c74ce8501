//! The kinds of errors, by what a caller can do about them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of an error, by what a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The connection could not be established, or was broken before the response started. If the
    /// connection was broken, the provider may have received the request.
    Connect,
    /// A timeout expired; see [`Timeouts`](crate::http::Timeouts). If a part of the turn has
    /// arrived, the source of the error is a [`PartialTurn`](crate::turn::PartialTurn).
    Timeout,
    /// The key is missing, wrong, or not allowed to send this request.
    /// [`Error::auth_problem`](super::Error::auth_problem) may have the reason.
    Auth,
    /// The account has no credit or no valid means of payment.
    Billing,
    /// Too many requests or tokens were sent. [`Error::retry_after`](super::Error::retry_after) may
    /// have the time to wait, and [`Error::rate_limit_scope`](super::Error::rate_limit_scope) may
    /// have the limit.
    RateLimited,
    /// The provider currently has no capacity.
    Overloaded,
    /// The provider failed with an internal error.
    Server,
    /// The request does not fit the model's context window;
    /// [`Error::context_limits`](super::Error::context_limits) may have the numbers.
    ContextWindow,
    /// The provider rejects the request, so that sending the same request again does not help.
    InvalidRequest,
    /// The wire, the model or the store does not support the requested operation.
    Unsupported,
    /// A content filter blocked the request or the answer, or the model refused to answer.
    Filtered,
    /// The model's generation failed, for example in an invalid tool call. The request was valid,
    /// and the model may answer differently if the same request is sent again.
    GenerationFailed,
    /// A turn ended without its terminal marker. The source of the error is a
    /// [`PartialTurn`](crate::turn::PartialTurn).
    IncompleteTurn,
    /// The model's answer does not have the required form. The source of the error is a
    /// [`ParseError`](crate::turn::ParseError). Asking the model again may help.
    Malformed,
    /// The provider violated its own protocol.
    Protocol,
    /// A size exceeded a limit of this crate.
    TooLarge,
    /// A hook failed or took too long. The error ends a run unless the hook only observes.
    Hook,
    /// Code that the caller supplied panicked.
    Panic,
    /// A store failed.
    Store,
    /// Another writer wrote first.
    Conflict,
    /// A replay diverged from the recording. The source of the error is a
    /// [`ReplayMismatch`](crate::replay::ReplayMismatch) or a
    /// [`RequestMismatch`](crate::provider::RequestMismatch).
    ReplayMismatch,
    /// A run ended with a reason other than `completed`. The source of the error is the
    /// [`Outcome`](crate::event::Outcome).
    Unfinished,
    /// Any other kind, including kinds added in a later version.
    #[serde(other)]
    Other,
}

impl ErrorKind {
    /// Returns the name of the kind as it is serialized, for example `rate_limited`.
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

    /// Returns whether errors of this kind may be temporary, so that the same request may succeed
    /// if it is sent again later. [`Error::is_retryable`](super::Error::is_retryable) also
    /// considers the details of an error.
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
