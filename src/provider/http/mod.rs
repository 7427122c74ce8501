//! A model over HTTP: one provider for every wire.

mod exchange;
mod provider;
mod response_kind;
mod settings;
mod wire;

pub use provider::HttpProvider;
pub use wire::{Destination, EncodedRequest, ErrorResponse, Wire};
