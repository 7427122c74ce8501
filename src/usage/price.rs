//! One price for each kind of token, supplied by the user.

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
    /// The price of tokens that were written to a cache, for whatever time.
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

    /// Returns whether all prices are finite and not negative. Check prices that come from a file:
    /// a run with a cost limit fails before it sends a request to a model whose price is not valid.
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
pub(super) fn round_to_u64(number: f64) -> u64 {
    number.round() as u64
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
            ..Usage::default()
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
}
