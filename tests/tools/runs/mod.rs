//! What stands between the calls of a turn and their results.

mod approval;
pub(crate) mod fixture;
mod gate;
mod repair;
mod results;
mod resume;
mod timeouts;

use self::fixture::*;
