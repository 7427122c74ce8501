//! Ollama's own wire: decoding of lines, encoding of requests, round trips, and, over HTTP, the
//! URLs of requests.

mod answers;
mod calls;
mod fixture;
#[cfg(feature = "http")]
mod http;
mod invariants;
mod requests;
mod round_trip;

use self::fixture::*;
