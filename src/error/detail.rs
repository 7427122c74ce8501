//! What only some errors have.

use serde::{Deserialize, Serialize};

/// What there was too much of, where a provider says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RateLimitScope {
    /// Requests in a short while.
    Requests,
    /// Tokens in a short while, those asked for and those expected together.
    Tokens,
    /// Tokens of requests in a short while.
    InputTokens,
    /// Tokens of answers in a short while.
    OutputTokens,
    /// Requests at one time.
    Concurrency,
    /// An allowance of a day or more, of whatever kind.
    Daily,
    /// This one request is larger than the whole allowance. Waiting does not help, a smaller
    /// request does.
    RequestSize,
    /// A scope of a later version.
    #[serde(other)]
    Other,
}

/// Why a key did not open the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuthProblem {
    /// No key was sent.
    MissingKey,
    /// The key is not known, or not written as keys are.
    InvalidKey,
    /// The key was good once.
    ExpiredKey,
    /// The key is known, and may not do this or use this model.
    Forbidden,
    /// The service is not offered where the request comes from.
    Region,
    /// A problem of a later version.
    #[serde(other)]
    Other,
}

/// By how much a request is too long, in tokens, as far as the provider says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ContextLimits {
    /// What fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What the request takes. Some providers count the answer's limit in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
}

impl ContextLimits {
    /// Makes the limits of what a provider says.
    pub fn new(limit: Option<u64>, requested: Option<u64>) -> Self {
        Self { limit, requested }
    }
}
