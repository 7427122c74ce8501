//! Whether somebody else could do better.

use crate::error::{Error, ErrorKind};

/// Which errors are worth another attempt, or another provider.
pub(super) type ErrorPredicate = dyn Fn(&Error) -> bool + Send + Sync;

/// Whether another provider could do better: what failed is the provider, its account or its
/// model, not the request.
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
        // A mistake of the caller shows itself rather than being paid for elsewhere, and going
        // around a filter is the caller's own decision.
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
