//! What an agent may do: tools, and the kit that runs the calls of a turn.

mod handler;
mod settings;
mod tool;

#[cfg(feature = "schemars")]
mod arguments;
mod audited;
mod check;
mod external;
mod typed;
mod why;

mod context;
mod data;
mod output;
mod suspension;

mod gate;
mod run;
mod toolkit;

#[cfg(feature = "schemars")]
pub use arguments::ToolArguments;
pub use context::ToolContext;
pub(crate) use data::RemainingDepth;
pub use data::RunData;
pub use gate::{Permission, PermissionDecision, ToolPolicy, Verdict};
pub use handler::{PreparedCall, ToolHandler, UpdateStream};
pub use output::{IntoToolError, IntoToolOutput, Json, ToolOutput, ToolUpdate};
pub(crate) use run::redact_each;
pub use run::{SavedCalls, ToolRun, ToolRunOutcome};
pub use settings::DEFAULT_TIMEOUT;
pub use suspension::Suspension;
pub use tool::Tool;
pub(crate) use tool::validate_spec;
pub use toolkit::Toolkit;
pub use why::{Rationale, Risk};

pub use crate::request::ToolSpec;
