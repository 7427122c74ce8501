//! The budget that was exhausted in a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Describes an exhausted budget and the amount that was used. The amount used may exceed the
/// limit, because a response that crosses the limit has already been paid for and is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BudgetExceeded {
    /// The quantity that the budget limits, which also determines the unit of `used` and `limit`.
    pub kind: BudgetKind,
    /// The amount used by the run or, for the limit of a [pool](crate::agent::Pool), by all runs
    /// that share the pool.
    pub used: u64,
    /// The amount that the run, or all runs that share the pool, were allowed to use.
    pub limit: u64,
    /// Whether a token target was abandoned because the model stopped making progress.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diminishing_returns: bool,
}

/// The quantity that a budget limits, which also determines the budget's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BudgetKind {
    /// The number of output tokens.
    OutputTokens,
    /// The number of input and output tokens.
    TotalTokens,
    /// The number of input and output tokens used by all runs that share a pool.
    Pool,
    /// An amount of money, of the run or of all runs that share a pool, in millionths of the
    /// currency unit used for the prices.
    Money,
    /// The time since the first poll, in milliseconds.
    Time,
    /// The number of tool calls.
    ToolCalls,
    /// The number of output tokens that the model is asked to use.
    Target,
    /// A kind that was added in a later version.
    #[serde(other)]
    Other,
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, limit) = match self.kind {
            BudgetKind::Money => (format_millionths(self.used), format_millionths(self.limit)),
            _ => (self.used.to_string(), self.limit.to_string()),
        };
        let unit = match self.kind {
            BudgetKind::OutputTokens | BudgetKind::Target => "output tokens",
            BudgetKind::TotalTokens => "tokens",
            BudgetKind::Pool => "tokens of the shared pool",
            BudgetKind::Money => "of money",
            BudgetKind::Time => "milliseconds",
            BudgetKind::ToolCalls => "tool calls",
            BudgetKind::Other => "units",
        };
        write!(f, "{used} of {limit} {unit} used")
    }
}

/// Formats a number of millionths as a decimal number of units, without trailing zeros.
fn format_millionths(millionths: u64) -> String {
    let digits = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_displayed_in_price_units() {
        for (used, limit, expected) in [
            (12_345, 10_000, "0.012345 of 0.01"),
            (3_000_000, 2_500_000, "3 of 2.5"),
            (0, 1, "0 of 0.000001"),
            (u64::MAX, 10_000_000, "18446744073709.551615 of 10"),
        ] {
            let exceeded =
                BudgetExceeded { kind: BudgetKind::Money, used, limit, diminishing_returns: false };
            assert_eq!(exceeded.to_string(), format!("{expected} of money used"));
        }
    }
}
