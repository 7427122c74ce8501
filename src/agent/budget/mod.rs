//! Budgets: limits that end a run, a pool of tokens and money that runs share, and a target for
//! output tokens.

mod limits;
mod pool;
mod target;

pub use limits::{Budget, BudgetUsage};
pub(in crate::agent) use pool::PoolAmount;
pub use pool::{AcquireSlot, Pool, PoolSlot, ReserveTokens, TokenReservation};
pub use target::{Target, TargetDecision, TargetProgress};
