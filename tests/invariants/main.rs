//! The invariants of the crate, and the structure of its code.
//!
//! | module | claims |
//! |---|---|
//! | `grid` | the invariants, over a grid of scripts, with a drop and an interrupt at every poll |
//! | `worlds` | the invariants, in every small world: each short script with each disturbance |
//! | `pull` | nothing happens that the consumer has not polled for |
//! | `determinism` | equal runs send equal bytes, and requests extend one another |
//! | `usage` | the usage of a run is the sum of its attempts |
//! | `tool_runs` | when the calls of a turn start, and where their results go |
//! | `call_ids` | ids of calls are unique, also those of removed calls |
//! | `endings` | a turn, a loop and a run end exactly once |
//! | `panics_in_drop` | a panic in a destructor changes no ending |
//! | `steering` | input that is steered to a run |
//! | `stored_values` | stored values are read back exactly |
//! | `floors` | a module uses only modules on lower floors, and its files form no cycles |
//! | `requirements` | the tests and the parts that the table of requirements names exist |
//! | `sizes` | the size of events, steps and the loop |

mod call_ids;
mod determinism;
mod endings;
mod files;
mod floors;
mod grid;
mod panics_in_drop;
mod pull;
mod requirements;
#[cfg(target_pointer_width = "64")]
mod sizes;
mod steering;
mod stored_values;
mod tool_runs;
mod usage;
mod worlds;
