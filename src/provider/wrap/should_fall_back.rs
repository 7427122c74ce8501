//! Decides, after a provider has failed, whether another provider may succeed.

use crate::error::{Error, ErrorKind};

/// A function that selects errors, for example the errors after which to retry or fall back.
pub(in crate::provider) type ErrorPredicate = dyn Fn(&Error) -> bool + Send + Sync;

/// Returns whether another provider may succeed. Another provider may succeed if the error was
/// caused by the provider, the account or the model rather than by the request.
pub(crate) fn should_fall_back(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Connect
        | ErrorKind::Timeout
        | ErrorKind::Auth
        | ErrorKind::Billing
        | ErrorKind::RateLimited
        | ErrorKind::Overloaded
        | ErrorKind::Server
        | ErrorKind::GenerationFailed
        | ErrorKind::ContextWindow
        // Another model does not receive this reasoning.
        | ErrorKind::ReasoningRefused
        | ErrorKind::IncompleteTurn
        | ErrorKind::Protocol
        | ErrorKind::TooLarge => true,
        // A mistake by the caller must be reported instead of causing another request. Whether to
        // bypass a content filter is for the caller to decide.
        ErrorKind::InvalidRequest
        | ErrorKind::Unsupported
        | ErrorKind::Filtered
        | ErrorKind::Malformed
        | ErrorKind::Hook
        | ErrorKind::Panic
        | ErrorKind::Store
        | ErrorKind::OutcomeUnknown
        | ErrorKind::Conflict
        | ErrorKind::ReplayMismatch
        | ErrorKind::Unfinished
        | ErrorKind::Other => false,
    }
}
