//! What tests and examples talk to instead of a provider: a server on the loopback device.
//!
//! [`ModelServer`] speaks a real wire from a script, so that the whole path is run: HTTP, frames,
//! decoding. [`http`] is the plain server below it.

mod anthropic;
pub mod http;
mod model_server;

pub use model_server::ModelServer;
