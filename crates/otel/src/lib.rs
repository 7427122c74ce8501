//! Records the runs of `turnstream`'s agents as OpenTelemetry spans and metrics, by the conventions
//! for generative AI.
//!
//! [`Telemetry`] is a setting of an agent or of a hub, whose runs it records. It depends on
//! OpenTelemetry's API only, and takes a tracer and a meter from the program.
//!
//! ```
//! use opentelemetry::global;
//! use turnstream::Agent;
//! use turnstream::provider::Scripted;
//! use turnstream_otel::Telemetry;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // The program has installed an exporter; without one, nothing is recorded.
//! let telemetry = Telemetry::new(global::tracer("my-program"), &global::meter("my-program"));
//! let agent = Agent::new(Scripted::new(["Hello!"])).with_run_observer(telemetry);
//! assert_eq!(agent.run("Hi").outcome().await.text, "Hello!");
//! # }
//! ```
//!
//! [`with_telemetry`](TelemetryExt::with_telemetry) records a single stream of events, for example
//! that of a hand-written loop. The [`guide`] lists the spans, and shows how traces are continued
//! in tools, in the servers of models and in MCP servers.
//!
//! # Implementation
//!
//! [`RunTelemetry`] is a fold over the events of a run, like the crate's other folds. `agent_span`
//! and `request_spans` are its state machines, with the spans of single requests and tools in
//! `chat_span` and `tool_span`. `run_observer` starts such a fold for each run of an agent or hub.
//! `names` is the only file with the names that the conventions define. No task is spawned, and
//! the current context of the thread is neither read nor set.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod agent_span;
mod chat_span;
mod content;
mod instruments;
mod names;
mod outcome_attributes;
mod request_attributes;
mod request_spans;
mod run_observer;
mod run_progress;
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
// Pages of documentation have no files beside them, so the picture is part of the page.
#[doc = concat!("[file-picture-retry]: data:image/png;base64,", include_str!("guide/retry.png.base64"))]
#[doc = include_str!("guide/telemetry.md")]
pub mod guide {}

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
