//! Calculates the cost of tokens, using a price table supplied by the user.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::usage::Usage;

/// The token prices for a model, in currency units per million tokens.
///
/// The user supplies the prices, because vendors change them over time. This crate contains no
/// prices.
///
/// ```
/// use turnstream::usage::{Price, Usage};
///
/// let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
/// let usage = Usage {
///     input_tokens: 1_000,
///     cache_read_input_tokens: 800,
///     output_tokens: 100,
///     ..Usage::default()
/// };
/// // 200 fresh tokens at 3, 800 cached ones at 0.3, 100 output tokens at 15.
/// assert_eq!(price.cost(&usage), 600 + 240 + 1_500);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// The price of input tokens that were neither read from nor written to a cache.
    pub input: f64,
    /// The price of output tokens, including reasoning tokens.
    pub output: f64,
    /// The price of tokens that were read from a cache.
    pub cache_read: f64,
    /// The price of tokens that were written to a cache.
    pub cache_write: f64,
}

impl Price {
    /// Returns the cost of the given usage, in millionths of the currency unit, rounded to the
    /// nearest integer.
    ///
    /// A price that is negative or NaN is treated as 0; to check the prices, use
    /// [`is_valid`](Self::is_valid). The result saturates at `u64::MAX`.
    pub fn cost(&self, usage: &Usage) -> u64 {
        let cached = usage.cache_read_input_tokens.saturating_add(usage.cache_write_input_tokens);
        // A price in units per million tokens equals the same number of millionths per token.
        let cost = token_cost(usage.input_tokens.saturating_sub(cached), self.input)
            + token_cost(usage.cache_read_input_tokens, self.cache_read)
            + token_cost(usage.cache_write_input_tokens, self.cache_write)
            + token_cost(usage.output_tokens, self.output);
        round_to_u64(cost)
    }

    /// Returns whether all prices are finite and not negative.
    pub fn is_valid(&self) -> bool {
        [self.input, self.output, self.cache_read, self.cache_write]
            .iter()
            .all(|price| price.is_finite() && *price >= 0.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of tokens stay far below 2^53")]
fn token_cost(tokens: u64, price: f64) -> f64 {
    match tokens == 0 || price.is_nan() || price < 0.0 {
        true => 0.0,
        false => tokens as f64 * price,
    }
}

/// Rounds to the nearest integer. Returns 0 for negative numbers and NaN.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates and returns 0 for NaN"
)]
fn round_to_u64(number: f64) -> u64 {
    number.round() as u64
}

/// A price table that maps model names to prices. The table is cheap to clone.
///
/// ```
/// use turnstream::usage::{Price, Prices};
///
/// let small = Price { input: 1.0, output: 5.0, cache_read: 0.1, cache_write: 1.25 };
/// let large = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
/// let prices = Prices::new().with_price("small", small).with_price("small-plus", large);
/// assert_eq!(prices.get("small"), Some(&small));
/// assert_eq!(prices.get("small-2026-01-31"), Some(&small));
/// assert_eq!(prices.get("small-plus:free"), Some(&large));
/// assert_eq!(prices.get("smaller"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices(Arc<BTreeMap<String, Price>>);

impl Prices {
    /// Creates an empty price table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the price for a model. The price also applies to models whose names start with `model`,
    /// followed by a `-`, `@`, `:` or `.`. If a name is added twice, the later price is used.
    pub fn with_price(mut self, model: impl Into<String>, price: Price) -> Self {
        Arc::make_mut(&mut self.0).insert(model.into(), price);
        self
    }

    /// Returns the price for a model, if any. An entry matches if its name is the model name, or a
    /// prefix of the model name that is followed by a `-`, `@`, `:` or `.`. If several entries
    /// match, the entry with the longest name is used.
    ///
    /// Note that an entry for `gpt-4` also matches the name `gpt-4.1`, so add both models if their
    /// prices differ.
    pub fn get(&self, model: &str) -> Option<&Price> {
        let ends = model.char_indices().rev().filter(|(_, c)| matches!(c, '-' | '@' | ':' | '.'));
        let starts = ends.filter(|(at, _)| *at > 0).map(|(at, _)| &model[..at]);
        std::iter::once(model).chain(starts).find_map(|name| self.0.get(name))
    }

    /// Converts an amount in currency units to millionths of the unit. Returns 0 if the amount is
    /// negative or NaN.
    pub(crate) fn to_micros(sum: f64) -> u64 {
        round_to_u64(sum * 1_000_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price { input: 2.0, output: 10.0, cache_read: 0.2, cache_write: 2.5 };

    #[track_caller]
    fn costs([input, output, read, write]: [u64; 4], price: Price, expected: u64) {
        let usage = Usage {
            input_tokens: input,
            output_tokens: output,
            cache_read_input_tokens: read,
            cache_write_input_tokens: write,
            // The reasoning tokens are part of the output tokens.
            reasoning_tokens: output,
        };
        assert_eq!(price.cost(&usage), expected);
    }

    #[test]
    fn each_token_is_priced_once() {
        costs([0, 0, 0, 0], PRICE, 0);
        costs([100, 0, 0, 0], PRICE, 200);
        costs([0, 100, 0, 0], PRICE, 1_000);
        costs([100, 0, 100, 0], PRICE, 20);
        costs([100, 0, 0, 100], PRICE, 250);
        costs([100, 10, 40, 20], PRICE, 80 + 100 + 8 + 50);
        costs([7, 0, 0, 0], Price { input: 0.1, ..PRICE }, 1);
    }

    #[test]
    fn excess_cached_tokens_never_make_a_cost_negative() {
        costs([10, 0, 100, 100], PRICE, 20 + 250);
        costs([0, 0, u64::MAX, u64::MAX], Price::default(), 0);
    }

    #[test]
    fn invalid_prices_cost_nothing_and_huge_ones_saturate() {
        for odd in [f64::NAN, -1.0, f64::NEG_INFINITY] {
            let price = Price { input: odd, ..PRICE };
            costs([100, 100, 0, 0], price, 1_000);
            assert!(!price.is_valid());
        }
        let endless = Price { input: f64::INFINITY, ..PRICE };
        assert!(!endless.is_valid());
        costs([1, 0, 0, 0], endless, u64::MAX);
        costs([0, 1, 0, 0], endless, 10);
        costs([u64::MAX, u64::MAX, 0, 0], PRICE, u64::MAX);
        assert!(PRICE.is_valid());
    }

    #[track_caller]
    fn finds(model: &str, expected: Option<f64>) {
        let price = |input| Price { input, ..PRICE };
        let prices = Prices::new()
            .with_price("gpt-4", price(9.0))
            .with_price("gpt-4", price(4.0))
            .with_price("gpt-4.1", price(4.1))
            .with_price("ü", price(1.0))
            .with_price("", price(0.5));
        assert_eq!(prices.get(model).map(|price| price.input), expected, "{model}");
    }

    #[test]
    fn the_longest_matching_name_prefix_determines_the_price() {
        finds("gpt-4", Some(4.0));
        finds("gpt-4-0613", Some(4.0));
        finds("gpt-4@eu", Some(4.0));
        finds("gpt-4:free", Some(4.0));
        finds("gpt-4.5-preview", Some(4.0));
        finds("gpt-4.1", Some(4.1));
        finds("gpt-4.1-mini", Some(4.1));
        finds("gpt-4o", None);
        finds("gpt", None);
        finds("openai/gpt-4", None);
        finds("ü-1", Some(1.0));
        finds("-", None);
        finds("", Some(0.5));
    }

    #[test]
    fn amounts_are_converted_to_micros() {
        assert_eq!(Prices::to_micros(0.25), 250_000);
        assert_eq!(Prices::to_micros(0.1), 100_000);
        assert_eq!(Prices::to_micros(-1.0), 0);
        assert_eq!(Prices::to_micros(f64::NAN), 0);
        assert_eq!(Prices::to_micros(f64::INFINITY), u64::MAX);
    }
}
