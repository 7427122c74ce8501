//! Durable runs: whatever attempt is lost, the run is the same.
//!
//! | module | claims |
//! |---|---|
//! | `in_memory` | the suite of engines holds for the one in memory |
//! | `drawn_runs` | what holds for drawn agents, commands and losses |
//! | `interrupts` | a run that is ended from outside at any place ends the same in each attempt |
//! | `calls_apart` | what readers see of calls that run apart, and when such a call is dropped |
//! | `hub` | what readers of a durable run see, and what its hub does to it |
//! | `misuse` | panics, drops, large values and unusual tools |

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
