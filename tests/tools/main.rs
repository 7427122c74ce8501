//! Tools: how the calls of a turn become results.
//!
//! | module | claims |
//! |---|---|
//! | `toolkit` | a toolkit runs the calls of a turn: order, concurrency, arguments, panics |
//! | `runs` | the steps between a call and its result: repair, policy, approval, timeouts, truncation |
//! | `verdicts` | a verdict applies to one pending call, and none is lost |
//! | `closures` | tools made of closures: state, arguments, outputs, errors |
//! | `names` | two tools with the same name, and tools that are replaced |
//! | `rationale` | tools whose calls state their reason, and where that reason is visible |
//! | `search` | a toolkit whose tools are searched for |
//! | `search_quality` | how well a search of 500 tools finds the right one |
//! | `approvals` | approvals, and tools that run elsewhere |
//! | `approval_attacks` | approvals that are replayed, raced, stale, foreign or forged |
//! | `arguments` | unusable arguments, ids that are not unique |
//! | `failing_tools` | tools that fail, do not exist, or return too much |

mod approval_attacks;
mod approvals;
mod arguments;
mod closures;
mod failing_tools;
mod names;
mod rationale;
mod runs;
mod search;
mod search_quality;
mod toolkit;
mod verdicts;
