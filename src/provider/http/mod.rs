//! The HTTP provider, generic over the wire.

mod exchange;
mod provider;
mod response_kind;
mod settings;
mod wire;

pub use provider::HttpProvider;
pub use wire::{Destination, EncodedRequest, ErrorResponse, Wire};
