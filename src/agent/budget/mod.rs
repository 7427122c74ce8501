//! Budgets: limits that end a run, a pool of tokens and money that runs share, and a target for
//! output tokens.

mod limits;
mod pool;
mod rate;
mod target;

pub use limits::Budget;
pub(crate) use limits::BudgetUsage;
pub(in crate::agent) use pool::PoolAmount;
pub use pool::{Pool, PoolSlot, TokenReservation};
pub(crate) use rate::Rate;
pub use target::Target;
pub(crate) use target::{TargetDecision, TargetProgress};

#[cfg(test)]
mod tests;
