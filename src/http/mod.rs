//! The HTTP transport, shared by all providers.
//!
//! | to | use |
//! |---|---|
//! | set a proxy, certificates or a hook for response heads | [`HttpClient`] |
//! | pass a key, a token that is refreshed, or a signer | [`Credential`], [`Token`] |
//! | keep a secret out of logs and errors | [`Secret`] |
//! | limit how long a request may take | [`Timeouts`] |
//! | send requests of your own, with the same connections and credentials | [`HttpClient::reqwest_client`], [`Credential::authorize`] |
//!
//! The transport is built on the reqwest crate. The only public functions whose signatures contain
//! a reqwest type are [`HttpClient::from_builder`] and [`HttpClient::reqwest_client`].

#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod client;
#[cfg(feature = "http")]
mod connection_runtime;
#[cfg(feature = "http")]
mod credential;
mod date;
mod deadline;
#[cfg(feature = "http")]
mod endpoint;
mod key_header;
mod parse_delay;
#[cfg(feature = "http")]
mod proxy;
#[cfg(feature = "http")]
mod rate_limit_headers;
#[cfg(feature = "http")]
mod request_body;
#[cfg(feature = "http")]
mod response;
mod retry_after;
mod secret;
mod secret_search;
mod timeout;
mod turn_deadlines;

#[cfg(feature = "http")]
pub use body::Body;
#[cfg(feature = "http")]
pub(crate) use client::{ConnectionPolicy, PostRequest, was_connection_closed};
#[cfg(feature = "http")]
pub use client::{HttpClient, RefusedRedirect};
#[cfg(feature = "http")]
pub use credential::{Authorization, Credential, Token, UnsignedRequest};
#[cfg(feature = "http")]
pub(crate) use endpoint::{Endpoint, Header};
#[cfg(feature = "http")]
pub use endpoint::{is_secret_name, secrets_in_header, secrets_in_url};
pub use key_header::KeyHeader;
pub(crate) use parse_delay::{parse_delay, parse_duration_prefix};
#[cfg(feature = "http")]
pub(crate) use rate_limit_headers::exhausted_rate_limit;
#[cfg(feature = "http")]
pub(crate) use request_body::RequestBody;
/// The underlying HTTP library, re-exported for use with [`HttpClient::from_builder`] and
/// [`HttpClient::reqwest_client`]. Any release of this crate may change the reqwest version.
#[cfg(feature = "http")]
pub use reqwest;
#[cfg(feature = "http")]
pub(crate) use response::Response;
#[cfg(feature = "http")]
pub use response::ResponseHead;
pub use retry_after::retry_after;
pub(crate) use secret::MASK;
pub use secret::Secret;
#[cfg(feature = "http")]
pub(crate) use secret::mask_secrets;
pub(crate) use secret_search::MIN_SECRET_BYTES;
pub use timeout::Timeouts;
pub(crate) use timeout::{DRAIN_TIMEOUT, MAX_DRAIN_BYTES};
pub(crate) use turn_deadlines::TurnDeadlines;
