//! Prices that are not a table of one price per model.

use std::time::SystemTime;

use crate::usage::{Billing, Cost, Usage};

/// A source of prices for requests, such as the bundled prices of the crate `turnstream-prices`.
///
/// A source is given a whole request, so a price may depend on the length of the prompt, the
/// service tier and the date. Add a source to [`Prices`](crate::usage::Prices) with
/// [`with_source`](crate::usage::Prices::with_source).
///
/// The methods are called while a run holds a lock, so they must return quickly and must not use
/// the run. For the same request, they must always return the same cost. In particular, they must
/// not read the clock: a run that is replayed, or continued on another machine, must arrive at the
/// same cost.
///
/// ```
/// use std::time::SystemTime;
/// use turnstream::Usage;
/// use turnstream::usage::{Cost, NameMatch, PriceSource, PricedRequest, Prices};
///
/// /// Charges one unit for each started 1,000 tokens.
/// struct Blocks;
///
/// impl PriceSource for Blocks {
///     fn find_name(&self, model: &str) -> Option<NameMatch> {
///         (model == "local").then_some(NameMatch::Exact)
///     }
///
///     fn cost(&self, request: &PricedRequest<'_>) -> Option<Cost> {
///         self.find_name(request.model)?;
///         Some(Cost::exact(request.usage.total().div_ceil(1_000) * 1_000_000))
///     }
/// }
///
/// let prices = Prices::new().with_source(Blocks);
/// let usage = Usage { input_tokens: 1_001, ..Usage::default() };
/// let request = PricedRequest::new("local", usage, SystemTime::UNIX_EPOCH);
/// assert_eq!(prices.cost(&request), Some(Cost::exact(2_000_000)));
/// ```
pub trait PriceSource: Send + Sync {
    /// Returns how the source knows a model's name, or `None` if the source has no price for the
    /// model. [`Prices`](crate::usage::Prices) prefers an exact match to its own price for a name
    /// without a date.
    fn find_name(&self, model: &str) -> Option<NameMatch>;

    /// Returns the cost of a request, or `None` if the source has no price for the model.
    ///
    /// Everything that the source cannot price must be in [`Cost::gaps`].
    fn cost(&self, request: &PricedRequest<'_>) -> Option<Cost>;
}

/// How a [`PriceSource`] knows a model's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameMatch {
    /// The source lists exactly this name.
    Exact,
    /// The source knows by a rule which model the name stands for, for example because the name is
    /// the name of a listed model and a date.
    ByRule,
}

/// A request whose cost is to be calculated.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PricedRequest<'a> {
    /// The name of the model that answered.
    pub model: &'a str,
    /// The tokens of this request alone.
    pub usage: Usage,
    /// The provider's report beside the tokens.
    pub billing: Option<&'a Billing>,
    /// When the request was sent.
    pub sent_at: SystemTime,
}

impl<'a> PricedRequest<'a> {
    /// Creates a request without billing information.
    pub fn new(model: &'a str, usage: Usage, sent_at: SystemTime) -> Self {
        Self { model, usage, billing: None, sent_at }
    }

    /// Sets the provider's report beside the tokens.
    pub fn with_billing(mut self, billing: &'a Billing) -> Self {
        self.billing = Some(billing);
        self
    }
}
