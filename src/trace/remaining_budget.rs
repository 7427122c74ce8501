//! A run's remaining budgets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::trace::step_time::to_ms;
use crate::usage::Usage;

/// Describes how much of each budget remains after a step. A field is `None` if the budget is
/// unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct RemainingBudget {
    /// The number of requests that may still be sent. If every turn contains exactly one call, this
    /// is also the number of remaining steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_remaining: Option<u64>,
    /// The number of input and output tokens that may still be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_remaining: Option<u64>,
    /// The number of output tokens that may still be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_remaining: Option<u64>,
    /// The number of tool calls that may still start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls_remaining: Option<u64>,
    /// The remaining cost budget, in millionths of the currency unit used for the prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_remaining: Option<u64>,
    /// The run's remaining time, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_remaining_ms: Option<u64>,
}

impl RemainingBudget {
    /// Returns whether all budgets are unlimited.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the budgets that remain after the run has used the amounts in `used` and the time
    /// `elapsed`.
    pub(super) fn after_use(&self, used: &UsedBudget, elapsed: Duration) -> Self {
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let elapsed = to_ms(elapsed);
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

/// The amounts that a run has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsedBudget {
    pub(super) requests: u64,
    pub(super) tool_calls: u64,
    pub(super) usage: Usage,
    /// The cost, in millionths of the currency unit.
    pub(super) cost_micros: u64,
}

impl UsedBudget {
    /// Adds the amounts that one attempt at a turn has used.
    pub(super) fn add(&mut self, usage: Usage, cost_micros: u64) {
        self.usage += usage;
        self.cost_micros = self.cost_micros.saturating_add(cost_micros);
    }
}
