//! Runs a turn's calls, up to the point at which the next request can be sent. A `tool_run` has one
//! source of results: `live_calls` admits and executes the calls, `replayed_calls` emits saved or
//! recorded events, and `journaled_calls` does one of the two when a journal says so.

mod tool_run;

mod policy_handle;
mod turn_calls;

mod result_source;

mod journaled_calls;
mod live_calls;
mod replayed_calls;

mod admission;

mod announced_calls;
mod call_executor;
mod concurrency_slots;
mod running_call;

mod result_collector;
mod saved_calls;

mod call_journal;

pub use call_journal::{AdmittedCall, CallJournal, CallsBegin};
pub use result_collector::ToolRunOutcome;
pub(crate) use result_collector::redact_each;
pub use saved_calls::SavedCalls;
pub use tool_run::ToolRun;
