//! Bytes to a provider and back: one transport, shared by all providers.
//!
//! The transport is reqwest, in few files; one signature names a type of it:
//! [`HttpClient::customized`].

#[cfg(feature = "http")]
mod allowance;
#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod client;
mod date;
mod deadline;
mod mask;
#[cfg(feature = "http")]
mod proxy;
#[cfg(feature = "http")]
mod response;
mod retry_after;
#[cfg(feature = "http")]
mod runtime;
mod secret;
mod timeout;
mod wait;

#[cfg(feature = "http")]
pub(crate) use allowance::used_up;
#[cfg(feature = "http")]
pub use body::Body;
#[cfg(feature = "http")]
pub use client::HttpClient;
#[cfg(feature = "http")]
pub(crate) use client::{Connection, Endpoint, Header, Post, is_secret, was_closed};
pub(crate) use deadline::{Deadline, earlier};
/// The transport, for [`HttpClient::customized`]: its version may change with any version of this
/// crate.
#[cfg(feature = "http")]
pub use reqwest;
#[cfg(feature = "http")]
pub(crate) use response::Response;
#[cfg(feature = "http")]
pub use response::ResponseHead;
pub use retry_after::retry_after;
pub use secret::Secret;
#[cfg(feature = "http")]
pub(crate) use secret::masked;
pub use timeout::Timeouts;
pub(crate) use wait::{span, until};
