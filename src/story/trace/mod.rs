//! What a run did, one event for each step: for machines as JSON lines, for people as YAML.

mod budgets;
mod event;
mod exit;
mod fold;
mod handle;
mod read;
mod sink;
mod traced;
mod yaml;

pub use budgets::RemainingBudget;
pub use event::{TraceAction, TraceEvent, TraceResult};
pub use exit::{FailureKind, NormalizedError, ToolExit};
pub use handle::Trace;
pub use read::read_jsonl;
pub use traced::TraceTo;
pub use yaml::Yaml;

#[cfg(test)]
mod tests;
