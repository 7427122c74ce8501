//! What a run may spend: limits that end it, a pool that it shares, a target that it is to reach.

mod limits;
mod pool;
mod target;

pub use limits::{Budget, BudgetUsage};
pub use pool::{AcquireSlot, Pool, PoolSlot, ReserveTokens, TokenReservation};
pub use target::{Target, TargetDecision, TargetProgress};
