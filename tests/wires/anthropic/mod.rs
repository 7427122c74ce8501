//! The Anthropic Messages wire: what its streams are read as, what requests are written as, and
//! that both fit together.

mod calls;
mod fixture;
mod life_cycle;
mod options;
#[cfg(feature = "http")]
mod over_http;
mod requests;
mod round_trip;
mod tool_search;
mod usage_and_stop;
