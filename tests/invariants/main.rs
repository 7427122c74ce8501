//! The laws of the crate, as its documentation numbers them, and the structure of its code.
//!
//! | module | claims |
//! |---|---|
//! | `grid` | the laws, over a grid of scripts, with a drop and an interrupt at every poll |
//! | `worlds` | the laws, in every small world: each short script with each disturbance |
//! | `single_invariants` | laws that need a test of their own |
//! | `edge_cases` | panics in a `Drop`, late results, ids, seals |
//! | `floors` | a module uses only modules on lower floors, and its files form no cycles |
//! | `requirements` | the tests and the parts that the table of requirements names exist |
//! | `sizes` | the size of events, steps and the loop |

mod edge_cases;
mod files;
mod floors;
mod grid;
mod requirements;
mod single_invariants;
#[cfg(target_pointer_width = "64")]
mod sizes;
mod worlds;
