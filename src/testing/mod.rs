//! Provides loopback servers that stand in for a provider in tests and examples.
//!
//! [`ModelServer`] sends scripted answers in the providers' real wire formats, so tests also cover
//! HTTP, framing and decoding. An [`Answer`] is the response to a request, and a [`Fault`] is an
//! error that occurs on the way to the client. [`lint`] checks requests as strictly as vendors do,
//! and [`http`] contains the underlying HTTP server. [`provider_suite`] contains contract tests for
//! authors of providers. [`mcp`] contains a scripted MCP server.
//!
//! The following server works with every wire format and injects faults into its scripted answers:
//!
//! ```
//! use std::time::Duration;
//! use serde_json::json;
//! use turnstream::provider::Reply;
//! use turnstream::testing::{FaultPosition, Answer, Fault, ModelServer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = ModelServer::start(|asked| match asked.index {
//!     // An error: retry after one second.
//!     0 => Answer::error(529).with_header("retry-after", "1"),
//!     // The connection closes within a frame.
//!     1 => Answer::reply("Let me see.").with_fault(Fault::Cut(FaultPosition::Bytes(300))),
//!     // A complete but slow turn.
//!     2 => Answer::reply(Reply::new().think("A sum.").call("add", json!({ "a": 1, "b": 2 })))
//!         .with_fault(Fault::FixedSizeChunks(1))
//!         .with_fault(Fault::DelayPerChunk(Duration::from_millis(1))),
//!     _ => Answer::reply("It is 3."),
//! })
//! .await?;
//! # assert!(server.url().starts_with("http://127.0.0.1:"));
//! # Ok(())
//! # }
//! ```

mod answer;
mod fault;
mod model_server;
mod received_request;
mod wire;

mod error_response;
mod gzip;
mod inject_faults;
mod response_stream;
mod scripted_stream;
mod signatures;

pub mod http;
pub mod lint;
pub mod mcp;
pub mod provider_suite;

pub use answer::Answer;
pub use fault::{Fault, FaultPosition, LineEnd, Noise};
pub use model_server::ModelServer;
pub use received_request::ReceivedRequest;
pub use wire::Wire;
