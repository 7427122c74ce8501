//! Decides which errors another provider may avoid when a provider has failed.

use crate::error::{Error, ErrorKind};

/// Selects errors, for example those to retry or to fall back on.
pub(super) type ErrorPredicate = dyn Fn(&Error) -> bool + Send + Sync;

/// Returns whether another provider may succeed, because the error is caused by the provider, its
/// account or its model, and not by the request.
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
        | ErrorKind::IncompleteTurn
        | ErrorKind::Protocol
        | ErrorKind::TooLarge => true,
        // A caller's mistake must be visible instead of costing another request. Bypassing a
        // content filter is the caller's own decision.
        ErrorKind::InvalidRequest
        | ErrorKind::Unsupported
        | ErrorKind::Filtered
        | ErrorKind::Malformed
        | ErrorKind::Hook
        | ErrorKind::Panic
        | ErrorKind::Store
        | ErrorKind::Conflict
        | ErrorKind::ReplayMismatch
        | ErrorKind::Unfinished
        | ErrorKind::Other => false,
    }
}
