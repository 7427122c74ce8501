//! Runs a turn's calls, up to the point at which the next request can be sent. `tool_run` combines
//! three parts: admission (deciding whether a call may run), execution (running the call) and the
//! collection of results.

mod tool_run;

mod policy_handle;
mod turn_calls;

mod admission;

mod call_executor;
mod concurrency_slots;
mod running_call;

mod result_collector;
mod saved_calls;

mod call_journal;

pub(crate) use call_journal::{CallJournal, CallStart, CallsBegin};
pub use result_collector::ToolRunOutcome;
pub(crate) use result_collector::redact_each;
pub use saved_calls::SavedCalls;
pub(crate) use tool_run::ProgressRedactor;
pub use tool_run::ToolRun;
