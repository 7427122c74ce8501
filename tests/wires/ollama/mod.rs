//! Ollama's own wire: what its lines are read as, what a request becomes, what goes back, and, over
//! HTTP, where it goes.

mod answers;
mod calls;
mod fixture;
#[cfg(feature = "http")]
mod http;
mod invariants;
mod requests;
mod round_trip;

use self::fixture::*;
