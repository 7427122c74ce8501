//! The tools of MCP servers.
//!
//! The Model Context Protocol lets a program offer tools, resources and prompts to any client. A [`Client`]
//! starts such a server or reaches it over HTTP. Its tools are those of an agent
//! ([`Agent::with_tool_source`](crate::Agent::with_tool_source)) or a [`Toolkit`](crate::Toolkit).
//!
//! # Which servers
//!
//! The protocol changed in 2026: servers up to version 2025-11-25 begin with a handshake and may send requests
//! of their own; from 2026-07-28 on each request stands alone. A client speaks both, and finds out which one
//! the server does: [`ServerInfo::era`]. Transports are standard input and output, and streamable HTTP.
//!
//! # What a call is
//!
//! | server | here |
//! |---|---|
//! | `tools/list` | a [`Tool`](crate::Tool) each, named `{server}__{tool}`, in the server's order |
//! | `inputSchema` | [`ToolSpec::parameters`](crate::tool::ToolSpec::parameters), as it came; arguments that do not fit never reach the server |
//! | `readOnlyHint` | calls may run beside others; without it a call runs [alone](crate::Tool::exclusive) |
//! | `notifications/progress` | [`ToolEvent::Progress`](crate::event::ToolEvent::Progress), the newest if the consumer is slow |
//! | text, images, resources | the parts of the result |
//! | `structuredContent` | JSON text, if the result has no other text |
//! | `isError`, an error, a broken connection | a result that says so, and that the model can act on |
//! | a question to the user | answered by [`with_elicitation`](Client::with_elicitation), otherwise declined |
//! | a request to a model, or for folders | answered by [`with_sampling`](Client::with_sampling) and [`with_roots`](Client::with_roots), otherwise by an error |
//!
//! A call that is dropped, reaches its time limit, or is part of a run that is interrupted is cancelled on the
//! server: by `notifications/cancelled`, or by closing the response of a server that speaks the newer form over HTTP.
//!
//! # What it costs
//!
//! The protocol's official SDK runs tasks of its own on the tokio runtime. They belong to the client's
//! connection: nothing of a run that was dropped is delivered. [`Limits`] bounds what a server may take.
//!
//! # Many tools
//!
//! The schemas of hundreds of tools can fill most of a model's context. With the feature `tool-search`,
//! `Toolkit::searchable` lists two tools in their place, also for tools of servers:
//!
//! ```
//! # #[cfg(feature = "tool-search")] {
//! use turnstream::mcp::{Client, ServerCommand};
//! use turnstream::provider::Scripted;
//! use turnstream::{Agent, Toolkit};
//!
//! let files = Client::stdio(ServerCommand::new("files-server"));
//! let tickets = Client::stdio(ServerCommand::new("tickets-server"));
//! let agent = Agent::new(Scripted::new(["Hello"]))
//!     .with_toolkit(Toolkit::default().searchable())
//!     .with_tool_source(files)
//!     .with_tool_source(tickets);
//! # drop(agent);
//! # }
//! ```
//!
//! [The guide](crate::guide::tools) has more.

mod command;
mod limits;
mod server_info;

mod client;
mod resources;
mod server_list;

mod call;
mod content;
mod listing;
mod questions;
mod shared_client;
mod tool_name;

mod active_calls;
mod endpoint;
mod line_channel;
mod process;
mod sdk;

pub use client::Client;
pub use command::ServerCommand;
pub use content::MediaParts;
pub use limits::Limits;
pub use questions::{Elicitation, ElicitationAnswer, ElicitationForm};
pub use resources::{Prompt, PromptArgument, Resource};
pub use server_info::{Era, ServerInfo};
