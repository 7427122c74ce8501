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
pub(crate) use data::AgentsLeft;
pub use data::RunData;
pub use gate::{Answer, Gate, Permit, Verdict};
pub use handler::{PreparedCall, ToolHandler, Updates};
pub use output::{IntoToolError, IntoToolOutput, Json, ToolOutput, Update};
pub(crate) use run::redact_all;
pub use run::{Answered, KeptCalls, ToolRun};
pub use settings::DEFAULT_TIMEOUT;
pub use suspension::Suspension;
pub use tool::Tool;
pub(crate) use tool::checked_spec;
pub use toolkit::Toolkit;
pub use why::{Risk, Why};

pub use crate::request::ToolSpec;
