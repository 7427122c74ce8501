//! Bytes to a provider and back: one transport, shared by all providers.
//!
//! The transport is reqwest, behind one file; none of its types is in a signature.

#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod client;
mod retry_after;
mod secret;
mod timeout;

#[cfg(feature = "http")]
pub use body::Body;
#[cfg(feature = "http")]
pub(crate) use client::Endpoint;
#[cfg(feature = "http")]
pub use client::{HttpClient, Response};
pub use retry_after::retry_after;
pub use secret::Secret;
pub use timeout::Timeouts;
