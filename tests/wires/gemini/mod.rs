//! The Gemini wire: what its streams are read as, what a request becomes, what goes back, and,
//! over HTTP, where it goes.

mod answers;
mod calls;
mod errors;
mod fixture;
#[cfg(feature = "http")]
mod http;
mod requests;
mod round_trip;

use self::fixture::*;
