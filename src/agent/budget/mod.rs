//! What a run may spend: limits that end it, a pool that it shares, a target that it is to reach.

mod limits;
mod pool;
mod target;

pub use limits::{Budget, Spent};
pub use pool::{Pool, Reservation, Reserve, Slot, WaitForSlot};
pub use target::{Nudging, Target, Tracker};
