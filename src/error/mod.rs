//! This crate's error type. An error's kind indicates how a caller can react to it, and its source
//! indicates the cause.
//!
//! | to know | use |
//! |---|---|
//! | what kind of error this is | [`Error::kind`] |
//! | whether another attempt may succeed, and when | [`Error::is_retryable`], [`Error::retry_after`] |
//! | which option or call is at fault | [`Error::parameter`] |
//! | the cause, such as a typed error of a module | [`Error::find_source`] |

mod detail;
mod error;
mod kind;
mod panic;
#[cfg(feature = "http")]
mod redacted_source;
mod source_chain;

pub use detail::{AuthProblem, ContextLimits, RateLimitScope};
pub use error::Error;
#[cfg(feature = "http")]
pub(crate) use error::source_chain;
pub use kind::ErrorKind;
pub(crate) use panic::{catch_panic, observe_panic, panic_to_error, panic_to_error_async};
pub(crate) use source_chain::format_source_chain;

#[cfg(test)]
mod tests;
