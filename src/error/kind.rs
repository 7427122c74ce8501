//! The kinds of errors, distinguished by how a caller can react to them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of an error. Kinds are distinguished by how a caller can react to the error.
///
/// ```
/// use turnstream::{Error, ErrorKind};
///
/// fn advice(error: &Error) -> &'static str {
///     match error.kind() {
///         ErrorKind::Auth | ErrorKind::Billing => "check the account",
///         ErrorKind::ContextWindow => "start a new conversation",
///         _ if error.is_retryable() => "try again later",
///         _ => "report the problem",
///     }
/// }
///
/// assert_eq!(advice(&Error::new(ErrorKind::Overloaded, "busy")), "try again later");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The connection could not be established, or was broken before the response started. If the
    /// connection was broken, the provider may have received the request.
    Connect,
    /// A timeout expired; see [`Timeouts`](crate::http::Timeouts). If part of the turn had already
    /// arrived, the error's source is a [`PartialTurn`](crate::turn::PartialTurn).
    Timeout,
    /// The key is missing, is wrong, or does not permit this request. If the reason is known,
    /// [`Error::auth_problem`](super::Error::auth_problem) returns it.
    Auth,
    /// The account has no credit or no valid means of payment.
    Billing,
    /// Too many requests or tokens were sent. [`Error::retry_after`](super::Error::retry_after)
    /// returns how long to wait, and [`Error::rate_limit_scope`](super::Error::rate_limit_scope)
    /// returns which limit was exceeded, if the provider reported this information.
    RateLimited,
    /// The provider currently lacks the capacity to handle the request.
    Overloaded,
    /// The provider failed with an internal error.
    Server,
    /// The request does not fit into the model's context window. If the provider reported the
    /// sizes, [`Error::context_limits`](super::Error::context_limits) returns them.
    ContextWindow,
    /// The provider rejected the request. Sending the same request again will not help.
    InvalidRequest,
    /// The provider rejected reasoning from an earlier turn, which the request sends back in signed
    /// or encrypted form, for example because the key, the organization or the gateway has changed.
    /// The same request without this reasoning may succeed. An agent sends it once.
    ReasoningRefused,
    /// The requested operation is not supported by the provider's API, the model or the store.
    Unsupported,
    /// A content filter blocked the request or the answer, or the model refused to answer.
    Filtered,
    /// The model failed to generate a valid answer, for example because it wrote an invalid tool
    /// call. The request was valid, and the model may give a different answer if the same request
    /// is sent again.
    GenerationFailed,
    /// A turn ended without the provider's end marker. The error's source is a
    /// [`PartialTurn`](crate::turn::PartialTurn).
    IncompleteTurn,
    /// The model's answer does not have the required form. The error's source is a
    /// [`ParseError`](crate::turn::ParseError). Asking the model again may help.
    Malformed,
    /// The provider violated its own protocol.
    Protocol,
    /// A size exceeded a limit set by this crate.
    TooLarge,
    /// A hook failed or took too long. The error ends the run unless the hook only observes the
    /// run.
    Hook,
    /// Code supplied by the caller panicked.
    Panic,
    /// A store operation failed. If the operation was an append, nothing was written.
    Store,
    /// A store operation failed, and it is unknown whether the store was changed. If the store was
    /// changed, it was changed completely. Load the session before you write to it again.
    OutcomeUnknown,
    /// Another writer wrote to the same target first.
    Conflict,
    /// A replay diverged from its recording. The error's source is a
    /// [`ReplayMismatch`](crate::replay::ReplayMismatch).
    ReplayMismatch,
    /// A run ended with a reason other than `completed`. The error's source is an
    /// [`UnfinishedRun`](crate::event::UnfinishedRun), which contains the run's outcome.
    Unfinished,
    /// Any other kind of error, including kinds that were added in a later version.
    #[serde(other)]
    Other,
}

impl ErrorKind {
    /// Returns the kind's name in serialized form, for example `rate_limited`.
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
            Self::ReasoningRefused => "reasoning_refused",
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
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Conflict => "conflict",
            Self::ReplayMismatch => "replay_mismatch",
            Self::Unfinished => "unfinished",
            Self::Other => "other",
        }
    }

    /// Returns whether errors of this kind may be temporary, so that the same request may succeed
    /// if it is sent again later. [`Error::is_retryable`](super::Error::is_retryable) also takes
    /// the error's details into account.
    pub(crate) fn is_transient(self) -> bool {
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
            | Self::ReasoningRefused
            | Self::Unsupported
            | Self::Filtered
            | Self::Malformed
            | Self::Protocol
            | Self::TooLarge
            | Self::Hook
            | Self::Panic
            | Self::Store
            | Self::OutcomeUnknown
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
