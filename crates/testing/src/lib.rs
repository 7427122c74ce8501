//! Tests for agents of [`turnstream`] without an API key or a network.
//!
//! [`ModelServer`] is a server on the loopback device that sends scripted answers in the providers'
//! real wire formats, so tests also cover HTTP, framing and decoding. An [`Answer`] is the response
//! to a request, and a [`Fault`] is an error that occurs on the way to the client. [`lint`] checks
//! requests as strictly as vendors do, and [`http`] contains the underlying HTTP server.
//!
//! The feature `suites`, which is enabled by default, adds a scripted MCP server and test suites
//! for authors of the traits of `turnstream`:
//!
//! | module | what it tests |
//! |---|---|
//! | [`mod@provider_suite`] | a [`Provider`](turnstream::Provider) that communicates with a server |
//! | [`mod@session_suite`] | a [`Store`](turnstream::session::Store) of sessions |
//! | [`mod@hub_suite`] | an [`EventLog`](turnstream::hub::EventLog) with its [`CommandInbox`](turnstream::hub::CommandInbox) |
//! | [`mod@durable_suite`] | a durable [`Engine`](turnstream::durable::Engine) |
//! | [`conversations`] | runs of every kind as their events, for tests of code that reads events |
//! | [`mcp`] | a scripted MCP server, for tests of clients |
//!
//! [The guide](guide) describes all stand-ins for a model, including the scripted provider of
//! `turnstream` itself.
//!
//! The following server works with every wire and injects faults into its scripted answers:
//!
//! ```
//! use std::time::Duration;
//! use serde_json::json;
//! use turnstream::provider::Reply;
//! use turnstream_testing::{FaultPosition, Answer, Fault, ModelServer};
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

mod body_format;
mod error_response;
mod gzip;
mod inject_faults;
mod lock;
mod panic;
mod response_stream;
mod scripted_stream;
mod signatures;
mod wire;

pub mod http;
pub mod lint;

#[cfg(feature = "suites")]
pub mod conversations;
#[cfg(feature = "suites")]
pub mod durable_suite;
#[cfg(feature = "suites")]
pub mod hub_suite;
#[cfg(feature = "suites")]
pub mod mcp;
#[cfg(feature = "suites")]
pub mod provider_suite;
#[cfg(feature = "suites")]
pub mod session_suite;

pub use answer::Answer;
pub use fault::{Fault, FaultPosition, LineEnd, Noise};
pub use model_server::ModelServer;
pub use received_request::ReceivedRequest;
pub use turnstream::provider::server::Wire;

/// The guide to testing agents: scripts, recordings, servers, and suites for your own types.
///
#[cfg_attr(feature = "suites", doc = include_str!("guide/links.md"))]
#[cfg_attr(feature = "suites", doc = include_str!("guide/testing.md"))]
pub mod guide {}

/// The README's example, run as a test.
#[cfg(all(doctest, feature = "suites"))]
#[doc = include_str!("../README.md")]
struct Readme;
