//! The steps between the calls of a turn and their results.

mod approval;
mod argument_repair;
pub(crate) mod fixture;
mod policy;
mod read_arguments;
mod results;
mod resume;
mod timeouts;

use self::fixture::*;
