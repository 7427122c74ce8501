//! The prices of models: a table, and a source for all models that are not in the table.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::usage::cost::{CostGap, CostGapKind};
use crate::usage::dated_name::name_without_date;
use crate::usage::price::round_to_u64;
use crate::usage::{Cost, NameMatch, Price, PriceSource, PricedRequest};

/// The prices of models: your own price for each model, and a [source](PriceSource) for all other
/// models. Cheap to clone.
///
/// A price applies to the model with exactly this name, and to the model's dated names, such as
/// `small-2026-01-31`, `small@20260131`, `small-0131` or `small-latest`. A source's price for
/// exactly the dated name takes precedence over that.
///
/// ```
/// use turnstream::usage::{Price, Prices};
///
/// let small = Price { input: 1.0, output: 5.0, cache_read: 0.1, cache_write: 1.25 };
/// let large = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
/// let prices = Prices::new().with_price("small", small).with_price("small-plus", large);
/// assert_eq!(prices.get("small"), Some(&small));
/// assert_eq!(prices.get("small-2026-01-31"), Some(&small));
/// assert_eq!(prices.get("small-plus"), Some(&large));
/// // Another model, whose price may be different.
/// assert_eq!(prices.get("small-mini"), None);
/// ```
#[derive(Clone, Default)]
pub struct Prices {
    table: Arc<BTreeMap<String, Price>>,
    source: Option<Arc<dyn PriceSource>>,
}

/// The price of a model, from whichever place has it.
#[derive(Clone)]
pub(crate) enum KnownPrice {
    Own(Price),
    Source(Arc<dyn PriceSource>),
}

impl KnownPrice {
    /// Returns the cost of a request, or `None` if the source has no price for it after all.
    pub(crate) fn cost(&self, request: &PricedRequest<'_>) -> Option<Cost> {
        match self {
            Self::Own(price) => Some(own_cost(price, request)),
            Self::Source(source) => source.cost(request),
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Own(price) => price.is_valid(),
            Self::Source(_) => true,
        }
    }
}

/// Returns the cost at a single price for each kind of token. Everything else is a gap.
fn own_cost(price: &Price, request: &PricedRequest<'_>) -> Cost {
    let gap = |kind| CostGap::new(kind, request.model);
    let mut cost = Cost::exact(price.cost(&request.usage));
    if request.usage.cache_write_1h_input_tokens > 0 {
        cost.gaps.push(gap(CostGapKind::LongCacheWrites));
    }
    if let Some(billing) = request.billing {
        let tier = billing.service_tier();
        cost.gaps.extend(tier.map(|tier| gap(CostGapKind::ServiceTier).with_detail(tier)));
        let tools = billing.server_tool_calls();
        cost.gaps.extend(tools.map(|(tool, _)| gap(CostGapKind::ServerTool).with_detail(tool)));
        cost.gaps.extend(billing.tokens_by_kind().filter_map(|(kind, _)| match kind {
            "cache_storage" => Some(gap(CostGapKind::CacheStorage)),
            // It is part of `input_audio`.
            "cache_read_audio" => None,
            kind => Some(gap(CostGapKind::TokenKind).with_detail(kind)),
        }));
    }
    cost
}

impl Prices {
    /// Creates an empty price table, with which the price of every model is unknown.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the price for a model and its dated names. If a name is added twice, the later price is
    /// used.
    pub fn with_price(mut self, model: impl Into<String>, price: Price) -> Self {
        Arc::make_mut(&mut self.table).insert(model.into(), price);
        self
    }

    /// Sets the source of the prices for all models that are not in the table. The source replaces
    /// the earlier source.
    pub fn with_source(mut self, source: impl PriceSource + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Returns the price for a model from the table, if any. An entry for the exact name takes
    /// precedence over an entry for the name without its date. The source is not asked.
    pub fn get(&self, model: &str) -> Option<&Price> {
        self.table.get(model).or_else(|| self.table.get(name_without_date(model)?))
    }

    /// Returns the cost of a request, or `None` if the price of its model is unknown.
    ///
    /// The price is, in this order: the table's price for exactly this name, the source's price for
    /// exactly this name, the table's price for the name without its date, the source's price.
    pub fn cost(&self, request: &PricedRequest<'_>) -> Option<Cost> {
        self.find(request.model)?.cost(request)
    }

    /// Returns the price of a model, if it is known.
    pub(crate) fn find(&self, model: &str) -> Option<KnownPrice> {
        if let Some(price) = self.table.get(model) {
            return Some(KnownPrice::Own(*price));
        }
        let known = self.source.as_ref().and_then(|source| {
            Some((source.find_name(model)?, KnownPrice::Source(Arc::clone(source))))
        });
        match known {
            Some((NameMatch::Exact, price)) => Some(price),
            by_rule => match self.get(model) {
                Some(price) => Some(KnownPrice::Own(*price)),
                None => by_rule.map(|(_, price)| price),
            },
        }
    }

    /// Returns whether a price may depend on the time of a request.
    pub(crate) fn depends_on_time(&self) -> bool {
        self.source.is_some()
    }
}

/// Converts an amount in currency units to millionths of the unit. Returns 0 if the amount is
/// negative or NaN.
pub(crate) fn units_to_micros(sum: f64) -> u64 {
    round_to_u64(sum * 1_000_000.0)
}

/// Two values are equal if their tables are equal and they share a source.
impl PartialEq for Prices {
    fn eq(&self, other: &Self) -> bool {
        let same_source = match (&self.source, &other.source) {
            (Some(source), Some(other)) => Arc::ptr_eq(source, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        self.table == other.table && same_source
    }
}

impl fmt::Debug for Prices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prices")
            .field("table", &self.table)
            .field("has_source", &self.source.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::usage::{Billing, Usage};

    fn price(input: f64) -> Price {
        Price { input, ..Price::default() }
    }

    #[track_caller]
    fn finds(model: &str, expected: Option<f64>) {
        let prices = Prices::new()
            .with_price("gpt-4", price(9.0))
            .with_price("gpt-4", price(4.0))
            .with_price("gpt-4-0314", price(3.0))
            .with_price("ü", price(1.0))
            .with_price("", price(0.5));
        assert_eq!(prices.get(model).map(|price| price.input), expected, "{model}");
    }

    #[test]
    fn a_price_applies_to_its_name_and_its_dates_only() {
        finds("gpt-4", Some(4.0));
        finds("gpt-4-0613", Some(4.0));
        finds("gpt-4-0314", Some(3.0));
        finds("gpt-4-latest", Some(4.0));
        finds("gpt-4-mini", None);
        finds("gpt-4@eu", None);
        finds("gpt-4:free", None);
        finds("gpt-4.1", None);
        finds("gpt-4.5-preview", None);
        finds("gpt-4o", None);
        finds("gpt", None);
        finds("openai/gpt-4", None);
        finds("ü-2025-01-01", Some(1.0));
        finds("-", None);
        finds("", Some(0.5));
    }

    /// Lists `a` and `a-0314`, and knows every other name that starts with `a`.
    struct Listed;

    impl PriceSource for Listed {
        fn find_name(&self, model: &str) -> Option<NameMatch> {
            match model {
                "a" | "a-0314" => Some(NameMatch::Exact),
                _ => model.starts_with('a').then_some(NameMatch::ByRule),
            }
        }

        fn cost(&self, request: &PricedRequest<'_>) -> Option<Cost> {
            self.find_name(request.model)?;
            Some(Cost::exact(100 * request.usage.input_tokens))
        }
    }

    #[track_caller]
    fn costs(prices: &Prices, model: &str, expected: Option<u64>) {
        let usage = Usage { input_tokens: 1, ..Usage::default() };
        let request = PricedRequest::new(model, usage, SystemTime::UNIX_EPOCH);
        assert_eq!(prices.cost(&request).map(|cost| cost.micros), expected, "{model}");
    }

    #[test]
    fn an_own_price_never_wins_over_a_sources_exact_name() {
        let prices = Prices::new().with_price("a", price(2.0)).with_source(Listed);
        costs(&prices, "a", Some(2));
        costs(&prices, "a-0613", Some(2));
        costs(&prices, "a-0314", Some(100));
        costs(&prices, "a-mini", Some(100));
        costs(&prices, "b", None);
        costs(&Prices::new().with_source(Listed), "a-0613", Some(100));
        costs(&Prices::new(), "a", None);
    }

    #[test]
    fn an_own_price_reports_everything_that_it_does_not_cover() {
        let prices = Prices::new().with_price("m", price(2.0));
        let mut billing = Billing::default();
        let usage = Usage { input_tokens: 5, cache_write_1h_input_tokens: 1, ..Usage::default() };
        let plain = Usage { cache_write_1h_input_tokens: 0, ..usage };
        let at = SystemTime::UNIX_EPOCH;
        let gaps = |usage, billing: &Billing| {
            let request = PricedRequest::new("m", usage, at).with_billing(billing);
            let gaps = prices.cost(&request).unwrap().gaps;
            gaps.iter().map(CostGap::to_string).collect::<Vec<_>>()
        };
        assert_eq!(gaps(plain, &billing), [""; 0]);
        billing.set_service_tier("flex");
        billing.set_server_tool_calls(Billing::WEB_SEARCH, 2);
        for kind in ["input_audio", "cache_read_audio", "output_image", "cache_storage"] {
            billing.set_tokens_of_kind(kind, 1);
        }
        let expected = [
            "cache writes of `m` for an hour are charged at the price of other cache writes",
            "the service tier `flex` of `m` is charged at the standard price",
            "the fees of the server tool `web_search` of `m` are unknown",
            "the fees for storing the cache that `m` has read are not included",
            "the `input_audio` tokens of `m` are charged like other tokens",
            "the `output_image` tokens of `m` are charged like other tokens",
        ];
        assert_eq!(gaps(usage, &billing), expected);
    }

    #[test]
    fn amounts_are_converted_to_micros() {
        assert_eq!(units_to_micros(0.25), 250_000);
        assert_eq!(units_to_micros(0.1), 100_000);
        assert_eq!(units_to_micros(-1.0), 0);
        assert_eq!(units_to_micros(f64::NAN), 0);
        assert_eq!(units_to_micros(f64::INFINITY), u64::MAX);
    }
}
