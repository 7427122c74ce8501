//! What a run may spend: limits that end it, a token pool that it shares, and a target to reach.

mod limits;
mod pool;
mod target;

pub use limits::{Budget, BudgetUsage};
pub use pool::{AcquireSlot, Pool, PoolSlot, ReserveTokens, TokenReservation};
pub use target::{Target, TargetDecision, TargetProgress};
