//! The Anthropic Messages wire: what its streams are read as, what requests are written as, and
//! that both fit together.

#[cfg(feature = "http")]
mod over_http;
