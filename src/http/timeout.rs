//! How long to wait for what.

use std::time::Duration;

/// How long a provider waits for the server. There is no limit on a whole turn: drop it instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From sending the request to the first byte of the answer's body; 5 minutes unless set.
    pub first_byte: Duration,
    /// Between two pieces of the body; 2 minutes unless set.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { first_byte: Duration::from_mins(5), idle: Duration::from_mins(2) }
    }
}
