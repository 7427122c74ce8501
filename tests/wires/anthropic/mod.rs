//! The Anthropic Messages wire: how its streams are decoded, how requests are encoded, and that
//! both are consistent.

mod calls;
mod fixture;
mod life_cycle;
mod options;
#[cfg(feature = "http")]
mod over_http;
mod requests;
mod round_trip;
mod tool_search;
mod unusual_histories;
pub(super) mod unusual_responses;
mod usage_and_stop;
