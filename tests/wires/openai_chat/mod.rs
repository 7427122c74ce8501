//! The Chat Completions wire: responses of servers, and requests in each dialect.

mod answers;
mod calls;
mod encode;
mod fixture;
mod options;
#[cfg(feature = "http")]
mod over_http;
mod reasoning;
mod requests;
mod responses;
pub(super) mod unusual_responses;

use self::fixture::*;
