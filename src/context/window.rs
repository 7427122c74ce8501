//! The size of a model's context window, and the threshold at which a request nearly fills it.

use std::sync::Arc;

use crate::context::estimate::estimate_from_usage;
use crate::context::{
    BytesDiv4, ContextWindows, CountTokens, count_request_tokens, estimate_request_tokens,
};
use crate::request::{Options, Request};

/// The size of a model's context window, and the threshold at which the window counts as nearly
/// full. Cheap to clone.
///
/// By default, the threshold is 80% of the window. The remaining 20% leave room for an answer
/// without a length limit, for errors in the estimate, and for tool results that arrive before the
/// next check. If the longest answer that the options allow would not fit after the request, the
/// threshold is lower, because some providers reject a request that leaves too little room for the
/// answer.
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
    /// The sizes of the windows of models. For all other models, the size is `tokens`.
    by_model: Option<Arc<dyn ContextWindows>>,
    threshold_percent: u32,
    counter: Arc<dyn CountTokens>,
    uses_provider_counts: bool,
}

impl Window {
    /// Creates a window of `tokens` tokens, shared by the request and the answer.
    pub fn new(tokens: u64) -> Self {
        Self {
            tokens,
            by_model: None,
            threshold_percent: 80,
            counter: Arc::new(BytesDiv4),
            uses_provider_counts: false,
        }
    }

    /// Creates a window whose size depends on the model. `otherwise` is the number of tokens for
    /// models that `windows` does not know.
    ///
    /// An agent uses the size for the [model](crate::provider::Provider::model) of the provider
    /// that it would send the next request to, which may be a fallback.
    ///
    /// ```
    /// use turnstream::context::Window;
    ///
    /// let windows = |model: &str| (model == "large").then_some(1_000_000);
    /// let window = Window::by_model(windows, 128_000);
    /// assert_eq!(window.for_model("large").tokens(), 1_000_000);
    /// assert_eq!(window.for_model("another").tokens(), 128_000);
    /// ```
    pub fn by_model(windows: impl ContextWindows + 'static, otherwise: u64) -> Self {
        Self { by_model: Some(Arc::new(windows)), ..Self::new(otherwise) }
    }

    /// Returns this window with the size of the model's context window, if the size depends on the
    /// model. The threshold and the token counter stay.
    pub fn for_model(&self, model: &str) -> Self {
        let known = self.by_model.as_ref().and_then(|windows| windows.context_window(model));
        Self { tokens: known.unwrap_or(self.tokens), by_model: None, ..self.clone() }
    }

    /// Sets the percentage at which the window counts as nearly full; 80 by default, at most 100.
    pub fn with_threshold_percent(mut self, percent: u32) -> Self {
        self.threshold_percent = percent.min(100);
        self
    }

    /// Sets the token counter for text whose token count no provider has reported; [`BytesDiv4`] by
    /// default.
    pub fn with_counter(mut self, counter: impl CountTokens + 'static) -> Self {
        self.counter = Arc::new(counter);
        self
    }

    /// Lets an agent ask the provider to [count](crate::Provider::count_tokens) the tokens of a
    /// request before it decides whether to compact the history. The count replaces the estimate.
    /// If the provider cannot count, or if counting fails, the estimate is used. A failure is
    /// reported to [`Hook::on_failure`](crate::agent::hook::Hook::on_failure), and the provider is
    /// not asked again in the same run.
    ///
    /// Each count costs one request more, which delays the turn. The provider is therefore asked
    /// only if the estimate exceeds half of the threshold, or if the request contains an image or a
    /// file whose tokens no answer has reported yet. An attempt is limited by
    /// [`Limits::compactor_timeout`](crate::agent::Limits::compactor_timeout).
    pub fn with_provider_counts(mut self) -> Self {
        self.uses_provider_counts = true;
        self
    }

    /// Returns whether an agent asks the provider to count the tokens of large requests; see
    /// [`with_provider_counts`](Self::with_provider_counts). A loop of your own then calls
    /// [`Provider::count_tokens`](crate::Provider::count_tokens) before it compacts, as an agent
    /// does.
    pub fn uses_provider_counts(&self) -> bool {
        self.uses_provider_counts
    }

    /// Returns the size of the window, in tokens. If the size [depends on the
    /// model](Self::by_model), this is the size for unknown models; see
    /// [`for_model`](Self::for_model).
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the number of tokens at which a request counts as nearly filling the window.
    ///
    /// The [`max_output_tokens`](Options::max_output_tokens) option is ignored if it is not smaller
    /// than the window.
    pub fn threshold(&self, options: &Options) -> u64 {
        let part = u128::from(self.tokens) * u128::from(self.threshold_percent) / 100;
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        let answer = options.max_output_tokens.map_or(0, u64::from);
        match self.tokens.saturating_sub(answer) {
            0 => part,
            max => part.min(max),
        }
    }

    /// [Estimates](estimate_request_tokens) the number of tokens in a request, using the window's
    /// counter.
    pub fn estimate_request_tokens(&self, request: &Request) -> u64 {
        estimate_request_tokens(request, &*self.counter)
    }

    /// Estimates the number of tokens in a request from the usage that providers have reported.
    /// Returns `None` if none of the reported usage is valid.
    pub(crate) fn estimate_from_usage(&self, request: &Request) -> Option<u64> {
        estimate_from_usage(&request.context, &*self.counter)
    }

    /// Estimates the number of tokens in a request using only the window's counter, ignoring the
    /// usage that providers have reported.
    pub fn count_request_tokens(&self, request: &Request) -> u64 {
        count_request_tokens(request, &*self.counter)
    }
}

impl_debug!(Window(it), tokens = it.tokens, threshold_percent = it.threshold_percent);
