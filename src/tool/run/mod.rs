//! What happens to the calls of a turn until the next request, in the order of the files: `tool_run`
//! puts together admission (may a call run?), execution (it runs) and results (what it came to).

mod tool_run;

mod calls;
mod guarded_gate;

mod admission;

mod execution;
mod places;
mod running;

mod kept;
mod results;

pub use kept::SavedCalls;
pub use results::ToolRunOutcome;
pub(crate) use results::redact_each;
pub use tool_run::ToolRun;
