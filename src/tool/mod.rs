//! Tools that an agent can call, and the toolkit that runs a turn's calls.

mod handler;
mod settings;
mod tool;
mod tool_record;

mod args_schema;
#[cfg(feature = "schemars")]
mod arguments;
mod external_tool;
mod late_bound_tool;
mod rationale;
mod typed_tool;
mod with_rationale;

mod context;
mod output;
mod run_data;
mod suspension;

mod run;
#[cfg(feature = "tool-search")]
mod search;
mod tool_policy;
mod tool_source;
mod toolkit;
mod unwrap_call;

#[cfg(feature = "schemars")]
pub use arguments::ToolArguments;
pub use context::ToolContext;
pub use handler::{PreparedCall, ToolHandler, UpdateStream};
pub(crate) use late_bound_tool::ListTools;
pub use output::{IntoToolError, IntoToolOutput, Json, ToolOutput, ToolUpdate};
pub use rationale::{Rationale, Risk};
pub(crate) use run::redact_each;
#[cfg(feature = "durable")]
pub(crate) use run::{CallJournal, CallStart, CallsBegin, ProgressRedactor};
pub use run::{SavedCalls, ToolRun, ToolRunOutcome};
pub(crate) use run_data::RemainingSubAgentDepth;
pub use run_data::RunData;
#[cfg(feature = "tool-search")]
pub use search::ToolSearch;
pub use settings::DEFAULT_TIMEOUT;
pub use suspension::Suspension;
pub use tool::Tool;
pub(crate) use tool::validate_spec;
pub use tool_policy::{Permission, PermissionDecision, ToolPolicy, Verdict};
pub(crate) use tool_record::ToolRecord;
pub use tool_source::{ToolList, ToolSource};
pub use toolkit::Toolkit;
pub(crate) use unwrap_call::{InnerToolNames, unwrapped_call};

pub use crate::request::ToolSpec;
