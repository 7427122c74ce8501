//! Providers that wrap another provider.

pub(in crate::provider) mod circuit_breaker;
pub(in crate::provider) mod fallback;
pub(in crate::provider) mod first_poll;
pub(in crate::provider) mod retry;
pub(in crate::provider) mod should_fall_back;
