//! The Gemini wire: decoding of streams, encoding of requests, round trips, and, over HTTP, the
//! URLs of requests.

mod answers;
mod calls;
mod errors;
mod fixture;
#[cfg(feature = "http")]
mod http;
mod requests;
mod round_trip;

use self::fixture::*;
