//! The HTTP provider, generic over the wire.

mod cloud_endpoints;
mod exchange;
pub(in crate::provider) mod from_env;
mod provider;
mod response_kind;
mod settings;
mod wire;

pub use provider::HttpProvider;
pub use wire::{Destination, EncodedRequest, ErrorResponse, TokenCountRequest, Wire};
