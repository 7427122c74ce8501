//! Which budget ended a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A budget and how much of it was used. What was used may be more than the limit: a response
/// that crosses it is kept, since it was paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Exceeded {
    /// What was counted, and with it the unit of the two numbers.
    pub kind: BudgetKind,
    /// How much was used.
    pub used: u64,
    /// How much there was.
    pub limit: u64,
    /// A token target was given up because the model no longer got further.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diminishing_returns: bool,
}

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BudgetKind {
    /// Tokens of answers.
    OutputTokens,
    /// Tokens of requests and answers.
    TotalTokens,
    /// Tokens of requests and answers, of all that share a pool.
    Pool,
    /// Millionths of the unit that the prices are in.
    Money,
    /// Milliseconds since the first poll.
    Time,
    /// Calls of tools.
    ToolCalls,
    /// Tokens of answers that the model was asked to spend.
    Target,
    /// A kind of a later version.
    #[serde(other)]
    Other,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.kind {
            BudgetKind::OutputTokens | BudgetKind::Target => "output tokens",
            BudgetKind::TotalTokens => "tokens",
            BudgetKind::Pool => "tokens of the shared pool",
            BudgetKind::Money => "millionths",
            BudgetKind::Time => "milliseconds",
            BudgetKind::ToolCalls => "tool calls",
            BudgetKind::Other => "units",
        };
        write!(f, "{} of {} {unit} used", self.used, self.limit)
    }
}
