//! Durable runs: whichever attempt is lost, the run is the same.
//!
//! | module | claims |
//! |---|---|
//! | `in_memory` | the suite for engines passes for the engine in memory |
//! | `drawn_runs` | properties that hold for random agents, commands and losses |
//! | `interrupts` | a run that is ended from outside at any operation ends in the same way in each attempt |
//! | `calls_apart` | the events of calls that run apart, and when such a call is dropped |
//! | `hub` | the events that readers of a durable run receive, and the effects of the hub's commands |
//! | `abandoned_runs` | approved calls of a run that was abandoned or failed do not begin again |
//! | `misuse` | panics, drops, large values and unusual tools |

mod abandoned_runs;
mod calls_apart;
mod drawn_runs;
mod hub;
mod interrupts;
mod lossy_run;
mod misuse;
#[path = "../support/mod.rs"]
mod support;

use turnstream::durable::suite::MemoryHost;

turnstream::durable_suite!(in_memory, || async { super::MemoryHost::new() });
