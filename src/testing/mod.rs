//! What tests and examples talk to instead of a provider: a server on the loopback device.
//!
//! [`ModelServer`] speaks the real wires from a script, so that the whole path is run: HTTP,
//! frames, decoding. An [`Answer`] is what it gives to one request; a [`Fault`] is what goes wrong
//! on the way. [`lint`] knows what a strict vendor refuses, and [`http`] is the plain server below.
//! [`provider_suite`] has the tests of a provider, for those who write one. [`mcp`] is a server of
//! tools instead of a model.
//!
//! An agent over every wire, from one script, through a bad day:
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
//!     // Come back in a second.
//!     0 => Answer::error(529).with_header("retry-after", "1"),
//!     // The connection breaks in the middle of a word.
//!     1 => Answer::reply("Let me see.").with_fault(Fault::Cut(FaultPosition::Bytes(300))),
//!     // A whole turn, though a slow one.
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
