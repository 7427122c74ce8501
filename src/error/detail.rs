//! Details that only some errors contain.

use serde::{Deserialize, Serialize};

/// The type of rate limit that was exceeded, as reported by the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RateLimitScope {
    /// The number of requests per short interval, such as a minute.
    Requests,
    /// The number of tokens per short interval, counting both the input and the expected output.
    Tokens,
    /// The number of input tokens per short interval.
    InputTokens,
    /// The number of output tokens per short interval.
    OutputTokens,
    /// The number of concurrent requests.
    Concurrency,
    /// Any quota that covers a day or longer.
    Daily,
    /// The size of a single request, which is larger than the entire allowance. Waiting will not
    /// help, but a smaller request may succeed.
    RequestSize,
    /// A scope that was added in a later version.
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
    /// The key is valid, but does not permit this request or this model.
    Forbidden,
    /// The service is not available in the region from which the request was sent.
    Region,
    /// A problem that was added in a later version.
    #[serde(other)]
    Other,
}

/// The size of a request and the size of the context window that it exceeds, in tokens. A size is
/// `None` if the provider does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ContextLimits {
    /// The maximum number of tokens in a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The number of tokens in the rejected request. Some providers count the maximum output
    /// towards this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
}

impl ContextLimits {
    /// Creates a `ContextLimits` from the numbers reported by a provider.
    pub fn new(limit: Option<u64>, requested: Option<u64>) -> Self {
        Self { limit, requested }
    }
}
