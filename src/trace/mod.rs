//! Traces runs. A trace contains one event for each step, and is written as JSON lines.
//!
//! [`EventStreamExt::trace_to`](crate::EventStreamExt::trace_to) adds each step of a run to a
//! [`Trace`]. A [`TraceEvent`] states what the step did, what resulted from it, and how much of the
//! budgets remained. An [`IterationSpan`] states why an iteration of the loop was followed by
//! another one. [`Trace::write_to`] writes both as they happen, and [`read_jsonl`] reads them back.
//! See the [guide](crate::guide::trace).

mod event;
mod iteration_span;
mod read_jsonl;
mod remaining_budget;
mod run_inputs;
mod step_time;
mod tool_exit;
mod trace;
mod trace_fold;
mod trace_line;
mod trace_to;
mod trace_writers;
#[cfg(feature = "tracing")]
mod with_tracing;

pub use event::{TraceAction, TraceEvent, TraceResult};
pub use iteration_span::IterationSpan;
pub use read_jsonl::read_jsonl;
pub use remaining_budget::RemainingBudget;
pub use run_inputs::RunInputs;
pub use step_time::StepTime;
pub use tool_exit::{FailureKind, NormalizedError, ToolExit};
pub use trace::Trace;
pub use trace_line::TraceLine;
pub(crate) use trace_to::TraceTo;
#[cfg(feature = "tracing")]
pub(crate) use with_tracing::{RunDescription, WithTracing};

#[cfg(test)]
mod tests;
