//! Durable runs: whichever attempt is lost, the run is the same.
//!
//! | module | claims |
//! |---|---|
//! | `in_memory` | the suite for engines passes for the engine in memory |
//! | `drawn_runs` | properties that hold for random agents, commands and losses |
//! | `interrupts` | a run that is ended from outside at any operation ends in the same way in each attempt |
//! | `separate_calls` | the events of separately executed calls, and when such a call is dropped |
//! | `hub` | the events that readers of a durable run receive, and the effects of the hub's commands |
//! | `early_ends` | the results of calls whose run is ended before it has taken them |
//! | `abandoned_runs` | approved calls of a run that was abandoned or failed do not start again |
//! | `replayed_turns` | a later attempt replays the turns of each wire |
//! | `misuse` | panics, drops, large values and unusual tools |

mod abandoned_runs;
mod costs;
mod drawn_runs;
mod early_ends;
mod hub;
mod interrupts;
mod lossy_run;
mod misuse;
mod replayed_turns;
mod separate_calls;
use turnstream_testing::durable_suite::MemoryHost;

turnstream_testing::durable_suite!(in_memory, || async {
    // The checks do not wait for the limits of their runs.
    tokio::time::pause();
    super::MemoryHost::new()
});
