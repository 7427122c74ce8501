//! Connects to MCP servers and offers their tools to agents of `turnstream`.
//!
//! The [Model Context Protocol](https://modelcontextprotocol.io/specification) lets a program offer
//! tools, resources and prompts to any client. A [`Client`] either starts an MCP server as a
//! process or connects to a server over HTTP. You can give the server's tools to an agent with
//! [`Agent::with_tool_source`](turnstream::Agent::with_tool_source), or put them into a
//! [`Toolkit`](turnstream::Toolkit).
//!
//! # Supported servers
//!
//! The protocol changed in 2026. Up to version 2025-11-25, a connection starts with a handshake,
//! and the server may send requests of its own. Since version 2026-07-28, each request is
//! self-contained. A client supports both generations of the protocol and detects which generation
//! the server uses; [`ServerInfo::era`] contains the result. The supported transports are standard
//! input and output, and streamable HTTP.
//!
//! # Mapping of the protocol
//!
//! | from the server | in this crate |
//! |---|---|
//! | `tools/list` | one [`Tool`](turnstream::Tool) for each entry, named `{server}__{tool}`, sorted by name |
//! | `inputSchema` | [`ToolSpec::parameters`], unchanged; arguments that do not match are not sent |
//! | `readOnlyHint` | calls may run concurrently; without it a call runs [alone](turnstream::Tool::exclusive) |
//! | `notifications/progress` | [`ToolEvent::Progress`]; a slow consumer receives only the newest event |
//! | text, images, resources | the result's parts; a `blob` that is a text file is text |
//! | `structuredContent` | JSON text without media that the content repeats, if the result has no other text |
//! | `isError`, an error, a broken connection | a result that reports the failure to the model |
//! | a question to the user | answered by [`with_elicitation`](ClientBuilder::with_elicitation), otherwise declined |
//! | a request to a model, or for folders | answered by [`with_sampling`] and [`with_roots`], otherwise by an error |
//!
//! [`ToolSpec::parameters`]: turnstream::tool::ToolSpec::parameters
//! [`ToolEvent::Progress`]: turnstream::event::ToolEvent::Progress
//! [`with_sampling`]: ClientBuilder::with_sampling
//! [`with_roots`]: ClientBuilder::with_roots
//!
//! A call is cancelled on the server if the call is dropped, reaches its time limit, or belongs to
//! a run that is interrupted. To cancel a call, the client sends `notifications/cancelled` or, if
//! the server uses the newer generation of the protocol over HTTP, closes the response.
//!
//! # Tasks and limits
//!
//! The protocol's official Rust SDK spawns tasks on the tokio runtime for each connection. These
//! tasks belong to the connection rather than to a run, and deliver no more data to a run that has
//! been dropped. [`Limits`] sets how much data a server may send and how long it may take to
//! respond.
//!
//! # Many tools
//!
//! Schemas for hundreds of tools can fill most of a model's context.
//! [`Toolkit::searchable`](turnstream::Toolkit::searchable) shows the model two search tools in place of
//! all tools, including the tools from servers:
//!
//! ```
//! use turnstream_mcp::{Client, ServerCommand};
//! use turnstream::provider::Scripted;
//! use turnstream::{Agent, Toolkit};
//!
//! let files = Client::stdio(ServerCommand::new("files-server")).build();
//! let tickets = Client::stdio(ServerCommand::new("tickets-server")).build();
//! let agent = Agent::new(Scripted::new(["Hello"]))
//!     .with_toolkit(Toolkit::default().searchable())
//!     .with_tool_source(files)
//!     .with_tool_source(tickets);
//! # drop(agent);
//! ```
//!
//! The [`guide`] covers connections, approvals and changing tool lists. To learn more about tools,
//! see [their page](turnstream::guide::tools) in the guide of `turnstream`.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `rustls` | yes | TLS through rustls, with the platform's certificates |
//! | `native-tls` | | TLS through the platform's own library |
//! | `validate` | | a full JSON Schema validator, which checks the arguments of calls before they are sent |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod command;
mod limits;
mod server_info;

mod client;
mod client_builder;
mod resources;
mod server_list;

mod answering;
mod call;
mod content;
mod listing;
mod questions;
mod repeated_media;
mod shared_client;
mod text_blob;
mod tool_name;

mod active_calls;
mod address;
mod connection_state;
mod endpoint;
mod http_events;
mod line_channel;
mod process;
mod sdk;
mod server_requests;

mod fnv;
mod json_values;
mod lock;
mod truncate;

pub use client::Client;
pub use client_builder::ClientBuilder;
pub use command::ServerCommand;
pub use content::MediaParts;
pub use limits::Limits;
pub use questions::{Elicitation, ElicitationAnswer, ElicitationForm};
pub use resources::{Prompt, PromptArgument, Resource};
pub use server_info::{Era, ServerInfo};

/// The guide to MCP servers: connections, results, approvals, changing tool lists and limits.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/mcp.md")]
pub mod guide {}

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
