//! What an agent may do: tools, and the kit that runs the calls of a turn.

#[cfg(feature = "schemars")]
mod arguments;
mod audited;
mod begin;
mod check;
mod context;
mod data;
mod external;
mod finish;
mod gate;
mod handler;
mod kept;
mod output;
mod pass;
mod places;
mod resume;
mod run;
mod running;
mod settings;
mod suspended;
mod then_next;
mod timer;
mod tool;
mod toolkit;
mod typed;
mod why;

#[cfg(feature = "schemars")]
pub use arguments::ToolArguments;
pub use context::ToolContext;
pub(crate) use data::AgentsLeft;
pub use data::RunData;
pub use finish::Answered;
pub use gate::{Answer, Gate, Permit, Verdict};
pub use handler::{PreparedCall, ToolHandler, Updates};
pub use kept::KeptCalls;
pub use output::{IntoToolError, IntoToolOutput, Json, ToolOutput, Update};
pub(crate) use pass::redact_all;
pub use run::ToolRun;
pub use settings::DEFAULT_TIMEOUT;
pub use suspended::Suspension;
pub use tool::Tool;
pub(crate) use tool::checked_spec;
pub use toolkit::Toolkit;
pub use why::{Risk, Why};

pub use crate::request::ToolSpec;
