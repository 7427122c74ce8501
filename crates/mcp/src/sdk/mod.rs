//! Connects to an MCP server with rmcp, the protocol's official SDK. Only this folder uses rmcp's
//! types.
//!
//! rmcp spawns its own tasks on the runtime in which a connection was created. The tasks belong to
//! the connection, never to a run. The tasks pass messages to calls through
//! [`ActiveCalls`](crate::active_calls::ActiveCalls), which discards messages for dropped calls.

pub(crate) mod connection;
pub(crate) mod connection_settings;
pub(crate) mod error_context;
pub(crate) mod pending_request;

mod handler;
mod http_backend;
mod http_transport;
mod line_transport;
mod messages;
mod tool_changes;
