//! The examples as programs: their output and their exit codes.
//!
//! | module | claims |
//! |---|---|
//! | `crash` | a process that is killed during a session loses nothing and repeats nothing |
//! | `minimal_loop` | the minimal loop: its steps, in both output formats, and its exit codes |
//! | `small` | the small examples: the essential lines of their output |
//! | `patterns` | the examples of patterns: their output, line by line |
//! | `worker` | the example `worker` is stopped by signals, loses nothing and continues its jobs |

mod crash;
#[cfg(feature = "schemars")]
mod minimal_loop;
#[cfg(all(feature = "http", feature = "schemars"))]
mod patterns;
#[cfg(feature = "schemars")]
mod small;
#[cfg(all(unix, feature = "http", feature = "schemars"))]
mod worker;
