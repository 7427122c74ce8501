//! Details that only some errors have.

use serde::{Deserialize, Serialize};

/// The rate limit that was exceeded, as the provider reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RateLimitScope {
    /// The number of requests per short interval, such as a minute.
    Requests,
    /// The number of tokens per short interval, where input and expected output are counted
    /// together.
    Tokens,
    /// The number of input tokens per short interval.
    InputTokens,
    /// The number of output tokens per short interval.
    OutputTokens,
    /// The number of concurrent requests.
    Concurrency,
    /// Any allowance for a day or longer.
    Daily,
    /// The size of a single request, which is larger than the whole allowance. Waiting does not
    /// help, but a smaller request may succeed.
    RequestSize,
    /// A scope added in a later version.
    #[serde(other)]
    Other,
}

/// The reason why authentication failed.
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
    /// The key is known, but is not allowed to send this request or to use this model.
    Forbidden,
    /// The service is not available in the region from which the request was sent.
    Region,
    /// A problem added in a later version.
    #[serde(other)]
    Other,
}

/// The sizes of a request and of the context window that it exceeds, in tokens, as far as the
/// provider reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ContextLimits {
    /// The maximum number of tokens of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The number of tokens of the rejected request. Some providers include the maximum output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
}

impl ContextLimits {
    /// Creates the limits from the numbers that a provider reports.
    pub fn new(limit: Option<u64>, requested: Option<u64>) -> Self {
        Self { limit, requested }
    }
}
