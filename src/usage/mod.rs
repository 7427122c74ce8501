//! Token counts: input, output, cache and reasoning tokens, their sums, and their cost.
//!
//! | | |
//! |---|---|
//! | [`Usage`] | the tokens of a turn or a run |
//! | [`Billing`] | the service tier, the server tools and the kinds of tokens of a turn, which affect its price |
//! | [`Prices`] | the prices of models: your own [`Price`]s, and a [`PriceSource`] for all others |
//! | [`Cost`] | the cost of one request, with a [`CostGap`] for everything that it does not include |
//!
//! The crate contains no prices, because vendors change them. The crate `turnstream-prices`
//! contains a price source; see the [guide](crate::guide::budgets).

mod billing;
mod cost;
mod dated_name;
mod price;
mod price_source;
mod prices;

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

pub use billing::Billing;
pub(crate) use billing::is_standard_tier;
pub(crate) use cost::add_gap;
pub use cost::{Cost, CostGap, CostGapKind};
pub use price::Price;
pub use price_source::{NameMatch, PriceSource, PricedRequest};
pub use prices::Prices;
pub(crate) use prices::{KnownPrice, units_to_micros};

/// The tokens used by a single turn, or by several turns combined.
///
/// `input_tokens` includes cache reads and writes, and `output_tokens` includes reasoning tokens,
/// regardless of how the provider counts.
///
/// ```
/// use turnstream::Usage;
///
/// let turn = Usage { input_tokens: 100, output_tokens: 20, ..Usage::default() };
/// let run: Usage = [turn, turn].into_iter().sum();
/// assert_eq!(run.total(), 240);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// The total number of input tokens, including cached tokens.
    pub input_tokens: u64,
    /// The total number of output tokens, including reasoning tokens.
    pub output_tokens: u64,
    /// The number of input tokens that were read from a cache.
    pub cache_read_input_tokens: u64,
    /// The number of input tokens that were written to a cache.
    pub cache_write_input_tokens: u64,
    /// The number of output tokens that were spent on reasoning.
    pub reasoning_tokens: u64,
    /// The part of `cache_write_input_tokens` that was written to a cache for an hour rather than
    /// for the provider's usual time, which is five minutes at Anthropic. Providers charge more for
    /// these writes.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_1h_input_tokens: u64,
    /// The number of these tokens, input and output, that are an estimate, because a turn was
    /// [interrupted](crate::RunHandle::interrupt_turn) before the provider had reported them. The
    /// output is estimated as a token for each four bytes, and the request as before a compaction.
    #[serde(skip_serializing_if = "is_zero")]
    pub estimated_tokens: u64,
}

/// The number of bytes of output for which a token is estimated.
const BYTES_PER_TOKEN: usize = 4;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    /// Returns the sum of the input and output tokens, which include cached and reasoning tokens.
    /// The sum saturates at `u64::MAX`.
    pub fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Adds an estimate of the tokens that have not been reported for an interrupted turn. Some
    /// providers report the input first, and a preliminary number of output tokens. `output_bytes`
    /// is the size of the output that has arrived.
    pub(crate) fn with_estimates(
        mut self,
        estimate_input: impl FnOnce() -> u64,
        output_bytes: usize,
    ) -> Self {
        let input = if self.input_tokens == 0 { estimate_input() } else { 0 };
        let output = u64::try_from(output_bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX);
        let output = output.saturating_sub(self.output_tokens);
        self.input_tokens = self.input_tokens.saturating_add(input);
        self.output_tokens = self.output_tokens.saturating_add(output);
        self.estimated_tokens = self.estimated_tokens.saturating_add(input).saturating_add(output);
        self
    }
}

impl Add for Usage {
    type Output = Self;

    // The sum saturates instead of overflowing, because the numbers come from the network.
    fn add(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cache_read_input_tokens: self
                .cache_read_input_tokens
                .saturating_add(other.cache_read_input_tokens),
            cache_write_input_tokens: self
                .cache_write_input_tokens
                .saturating_add(other.cache_write_input_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            cache_write_1h_input_tokens: self
                .cache_write_1h_input_tokens
                .saturating_add(other.cache_write_1h_input_tokens),
            estimated_tokens: self.estimated_tokens.saturating_add(other.estimated_tokens),
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    /// Returns how much each count has increased since `earlier`. For a count that has decreased,
    /// the increase is 0.
    fn sub(self, earlier: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(earlier.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(earlier.output_tokens),
            cache_read_input_tokens: self
                .cache_read_input_tokens
                .saturating_sub(earlier.cache_read_input_tokens),
            cache_write_input_tokens: self
                .cache_write_input_tokens
                .saturating_sub(earlier.cache_write_input_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(earlier.reasoning_tokens),
            cache_write_1h_input_tokens: self
                .cache_write_1h_input_tokens
                .saturating_sub(earlier.cache_write_1h_input_tokens),
            estimated_tokens: self.estimated_tokens.saturating_sub(earlier.estimated_tokens),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}
