//! One error type. Its kind says what a caller can do, its source what happened.

mod causes;
mod detail;
mod error;
mod kind;
mod panic;
#[cfg(feature = "http")]
mod rewritten;

#[cfg(feature = "http")]
pub(crate) use causes::causes;
pub(crate) use causes::chain;
pub use detail::{AuthProblem, ContextLimits, RateLimitScope};
pub use error::Error;
pub use kind::ErrorKind;
pub(crate) use panic::{catch_panic, panic_to_error, panic_to_error_async};

#[cfg(test)]
mod tests;
