//! What tests and examples talk to instead of a provider.

pub mod http;
