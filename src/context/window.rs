//! How much the model takes, and when that is near.

use std::fmt;
use std::sync::Arc;

use crate::context::estimate::estimate_from_usage;
use crate::context::{BytesDiv4, CountTokens, count_request_tokens, estimate_request_tokens};
use crate::request::{Options, Request};

/// The context window of a model, and from where on it counts as nearly full. Cheap to clone.
///
/// It is nearly full at four fifths, or earlier where the longest answer that the options allow would
/// not fit behind the request any more: some providers refuse such a request. The fifth that is left
/// is for the answer where its length is not limited, for what the estimate is wrong by, and for
/// results that come before it is looked at again.
///
/// ```
/// use turnstream::context::Window;
/// use turnstream::request::Options;
///
/// let window = Window::new(200_000);
/// assert_eq!(window.threshold(&Options::default()), 160_000);
/// let long = Options { max_output_tokens: Some(64_000), ..Options::default() };
/// assert_eq!(window.threshold(&long), 136_000);
/// ```
#[derive(Clone)]
pub struct Window {
    tokens: u64,
    threshold_percent: u32,
    counter: Arc<dyn CountTokens>,
}

impl Window {
    /// A window of so many tokens, requests and answers together.
    pub fn new(tokens: u64) -> Self {
        Self { tokens, threshold_percent: 80, counter: Arc::new(BytesDiv4) }
    }

    /// Sets at how many percent it is nearly full; 80 unless set, and at most 100.
    pub fn with_threshold_percent(mut self, percent: u32) -> Self {
        self.threshold_percent = percent.min(100);
        self
    }

    /// Sets how tokens are counted that no provider has counted; [`BytesDiv4`] unless set.
    pub fn with_counter(mut self, counter: impl CountTokens + 'static) -> Self {
        self.counter = Arc::new(counter);
        self
    }

    /// How many tokens it has.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How many tokens a request may have before it is nearly full.
    ///
    /// A longest answer that is as long as the window leaves nothing to plan with: it is ignored.
    pub fn threshold(&self, options: &Options) -> u64 {
        let part = u128::from(self.tokens) * u128::from(self.threshold_percent) / 100;
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        let answer = options.max_output_tokens.map_or(0, u64::from);
        match self.tokens.saturating_sub(answer) {
            0 => part,
            room => part.min(room),
        }
    }

    /// The [estimate](estimate_request_tokens) of a request by the window's counter.
    pub fn estimate_request_tokens(&self, request: &Request) -> u64 {
        estimate_request_tokens(request, &*self.counter)
    }

    /// The estimate, where a provider has counted most of it.
    pub(crate) fn estimate_from_usage(&self, request: &Request) -> Option<u64> {
        estimate_from_usage(&request.context, &*self.counter)
    }

    /// Estimates a request by the window's counter alone, without the usage that a provider has reported.
    pub fn count_request_tokens(&self, request: &Request) -> u64 {
        count_request_tokens(request, &*self.counter)
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("tokens", &self.tokens)
            .field("percent", &self.threshold_percent)
            .finish_non_exhaustive()
    }
}
