//! What can be done about an error, by its kind alone.

use crate::error::ErrorKind;

/// Whether the same request may do better a little later.
pub(super) fn may_pass(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Connect
        | ErrorKind::Timeout
        | ErrorKind::RateLimited
        | ErrorKind::Overloaded
        | ErrorKind::Server
        | ErrorKind::IncompleteTurn => true,
        ErrorKind::Auth
        | ErrorKind::Billing
        | ErrorKind::ContextWindow
        | ErrorKind::InvalidRequest
        | ErrorKind::Unsupported
        | ErrorKind::Filtered
        | ErrorKind::Protocol
        | ErrorKind::TooLarge
        | ErrorKind::Hook
        | ErrorKind::Panic
        | ErrorKind::Store
        | ErrorKind::Conflict
        | ErrorKind::Unfinished
        | ErrorKind::Other => false,
    }
}

/// Whether another provider could do better: what failed is the provider, its account or its
/// model, not the request.
pub(super) fn another_could(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Connect
        | ErrorKind::Timeout
        | ErrorKind::Auth
        | ErrorKind::Billing
        | ErrorKind::RateLimited
        | ErrorKind::Overloaded
        | ErrorKind::Server
        | ErrorKind::ContextWindow
        | ErrorKind::IncompleteTurn
        | ErrorKind::Protocol
        | ErrorKind::TooLarge => true,
        // A mistake of the caller shows itself rather than being paid for elsewhere, and going
        // around a filter is the caller's own decision.
        ErrorKind::InvalidRequest
        | ErrorKind::Unsupported
        | ErrorKind::Filtered
        | ErrorKind::Hook
        | ErrorKind::Panic
        | ErrorKind::Store
        | ErrorKind::Conflict
        | ErrorKind::Unfinished
        | ErrorKind::Other => false,
    }
}
