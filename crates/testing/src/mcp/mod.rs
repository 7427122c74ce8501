//! A scripted MCP server, with optional faults, for tests and examples.
//!
//! [`McpServer`] implements both eras of the protocol without an SDK: the modern era, which started
//! with version 2026-07-28, and the legacy era, in which a connection starts with `initialize`. The
//! server communicates over a pair of streams or over HTTP on the loopback device. An [`McpTool`]
//! consists of a schema and an async closure, an [`McpFault`] makes the server misbehave, and an
//! [`McpServerHandle`] gives access to the received messages.
//!
//! ```
//! use serde_json::json;
//! use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
//! use turnstream_testing::mcp::{McpServer, McpTool};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let schema = json!({ "type": "object", "properties": { "a": { "type": "number" } } });
//! let double = McpTool::new("double", "Doubles a number", schema, |args, _call| async move {
//!     format!("{}", args["a"].as_f64().unwrap_or(0.0) * 2.0)
//! });
//! let server = McpServer::new().with_tool(double);
//! let handle = server.handle();
//!
//! // A minimal client. A real one would discover the server first.
//! let (mut client, stream) = tokio::io::duplex(1024);
//! let (reader, writer) = tokio::io::split(stream);
//! let meta = json!({
//!     "io.modelcontextprotocol/protocolVersion": "2026-07-28",
//!     "io.modelcontextprotocol/clientCapabilities": {},
//! });
//! let params = json!({ "name": "double", "arguments": { "a": 4 }, "_meta": meta });
//! let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
//! client.write_all(format!("{call}\n").as_bytes()).await?;
//! client.shutdown().await?;
//!
//! server.serve(reader, writer).await?;
//! let mut answer = String::new();
//! BufReader::new(client).read_line(&mut answer).await?;
//! assert!(answer.contains(r#"{"type":"text","text":"8"}"#), "{answer}");
//! assert!(handle.received()[0].is_call("double"));
//! assert!(handle.violations().is_empty());
//! # Ok(())
//! # }
//! ```

mod answer;
mod call;
mod era;
mod fault;
mod handle;
mod http;
mod log;
mod server;
mod tool;

mod dispatch;
mod http_checks;
mod listing;
mod message;
mod outgoing;
mod peer;
mod receive;
mod resource;
mod run;
mod state;
mod stdio;

pub use answer::McpAnswer;
pub use call::McpCall;
pub use era::McpEra;
pub use fault::McpFault;
pub use handle::McpServerHandle;
pub use http::McpHttpServer;
pub use log::{McpReceived, McpRequestStatus};
pub use server::McpServer;
pub use tool::McpTool;
