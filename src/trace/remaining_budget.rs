//! What is left of the budgets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::usage::{Prices, Usage};

/// What is left of each budget behind a step. One without a limit is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct RemainingBudget {
    /// How many more requests may be sent: one step each, where a turn has one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_remaining: Option<u64>,
    /// Tokens of requests and answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_remaining: Option<u64>,
    /// Tokens of answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_remaining: Option<u64>,
    /// Calls of tools that may still be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls_remaining: Option<u64>,
    /// Money, in millionths of the unit of the prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_remaining: Option<u64>,
    /// Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_remaining_ms: Option<u64>,
}

impl RemainingBudget {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is left when so much was used.
    pub(super) fn after_use(&self, used: &UsedBudget, elapsed: Duration) -> Self {
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let elapsed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        Self {
            steps_remaining: left(self.steps_remaining, used.requests),
            tokens_remaining: left(self.tokens_remaining, used.usage.total()),
            output_tokens_remaining: left(self.output_tokens_remaining, used.usage.output_tokens),
            tool_calls_remaining: left(self.tool_calls_remaining, used.tool_calls),
            cost_remaining: left(self.cost_remaining, used.cost_micros),
            time_remaining_ms: left(self.time_remaining_ms, elapsed),
        }
    }
}

/// What a run has used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsedBudget {
    pub(super) requests: u64,
    pub(super) tool_calls: u64,
    pub(super) usage: Usage,
    /// In millionths.
    pub(super) cost_micros: u64,
}

impl UsedBudget {
    /// Counts what an attempt at a turn used.
    pub(super) fn add(&mut self, usage: Usage, model: &str, prices: &Prices) {
        self.usage += usage;
        if let Some(price) = prices.get(model) {
            self.cost_micros = self.cost_micros.saturating_add(price.cost(&usage));
        }
    }
}
