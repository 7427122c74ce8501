//! Records the runs of `turnstream`'s agents as OpenTelemetry spans and metrics, by the conventions
//! for generative AI.
//!
//! [`with_telemetry`](TelemetryExt::with_telemetry) works for any stream of events: the run of an
//! agent, the run of a session, or a hand-written loop. It depends on OpenTelemetry's API only, and
//! takes a tracer and a meter from the program.
//!
//! ```
//! use futures::StreamExt;
//! use opentelemetry::global;
//! use turnstream::Agent;
//! use turnstream::provider::Scripted;
//! use turnstream_otel::{Telemetry, TelemetryExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // The program has installed an exporter; without one, nothing is recorded.
//! let telemetry = Telemetry::new(global::tracer("my-program"), &global::meter("my-program"));
//! let agent = Agent::new(Scripted::new(["Hello!"]));
//! let mut events = agent.run("Hi").with_telemetry(&telemetry);
//! while let Some(Ok(event)) = events.next().await {
//!     print!("{}", event.text_delta().map_or("", |text| text));
//! }
//! # }
//! ```
//!
//! The [`guide`] lists the spans, and shows how traces are continued in tools, in the servers of
//! models and in MCP servers.
//!
//! # Implementation
//!
//! [`RunTelemetry`] is a fold over the events of a run, like the crate's other folds. `agent_span`
//! is its state machine, with the spans of requests and tools in `chat_span` and `tool_span`.
//! `names` is the only file with the names that the conventions define. No task is spawned, and
//! the current context of the thread is neither read nor set.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod agent_span;
mod chat_span;
mod content;
mod instruments;
mod names;
mod run_telemetry;
mod settings;
mod span;
mod telemetry;
mod tool_span;
mod with_telemetry;

pub use content::ContentKind;
pub use names::{CONVENTIONS_VERSION, Conventions};
pub use run_telemetry::RunTelemetry;
pub use telemetry::Telemetry;
pub use with_telemetry::{TelemetryExt, WithTelemetry};

/// The guide to telemetry: spans, metrics, content and the continuation of traces.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/telemetry.md")]
pub mod guide {}

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
