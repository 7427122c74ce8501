//! Details that only some errors have.

use serde::{Deserialize, Serialize};

/// The limit that was exceeded, as the provider reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RateLimitScope {
    /// Requests per short interval, such as a minute.
    Requests,
    /// Tokens per short interval, input and expected output together.
    Tokens,
    /// Input tokens per short interval.
    InputTokens,
    /// Output tokens per short interval.
    OutputTokens,
    /// Concurrent requests.
    Concurrency,
    /// Any allowance per day or longer.
    Daily,
    /// This single request is larger than the whole allowance. Waiting does not help; a smaller
    /// request does.
    RequestSize,
    /// A scope of a later version.
    #[serde(other)]
    Other,
}

/// Why authentication failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuthProblem {
    /// No key was sent.
    MissingKey,
    /// The key is unknown or malformed.
    InvalidKey,
    /// The key has expired.
    ExpiredKey,
    /// The key is known, but not allowed to do this or to use this model.
    Forbidden,
    /// The service is not available in the region that the request comes from.
    Region,
    /// A problem of a later version.
    #[serde(other)]
    Other,
}

/// By how many tokens a request exceeds the context window, as far as the provider reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ContextLimits {
    /// The number of tokens that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The number of tokens requested. Some providers include the maximum output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
}

impl ContextLimits {
    /// Makes the limits from the numbers that a provider reports.
    pub fn new(limit: Option<u64>, requested: Option<u64>) -> Self {
        Self { limit, requested }
    }
}
