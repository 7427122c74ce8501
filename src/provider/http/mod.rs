//! A model over HTTP: one provider for every wire.

mod answer;
mod exchange;
mod provider;
mod settings;
mod wire;

pub use provider::HttpProvider;
pub use wire::{Destination, Encoded, Refusal, Wire};
