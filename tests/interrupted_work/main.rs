//! Interrupted work is accounted for: wherever a run is interrupted, and wherever each of its calls
//! is then, no result is lost, no call runs twice, and no call that has started is reported as not
//! run.
//!
//! | module | contents |
//! |---|---|
//! | `axes` | the axes of the matrix, and the positions that are impossible, each with the reason |
//! | `scenario` | the calls of each turn, and the agents that make them |
//! | `probe` | a record of what models and tools really did |
//! | `machine` | runs of an agent, in a session and on a durable engine, polled one poll at a time |
//! | `trial` | a scenario whose run is interrupted, and a program that continues it until it completes |
//! | `account` | the law for each call |
//! | `matrix` | the tests: all cells, by machine |

mod account;
mod axes;
mod machine;
mod matrix;
mod probe;
mod scenario;
mod trial;
