//! Agents as pull-based streams.
//!
//! A turn of a language model is a stream of [`TurnEvent`]s. An agent is a loop over such turns: a
//! body converts a state to a stream of [`Step`]s, and [`loop_stream`] runs the body again whenever
//! a step contains the next state. The loop spawns no tasks, and does no work unless it is polled.
//! The next request is sent when the consumer polls for the next item, and dropping the stream
//! cancels all of its work.
//!
//! ```
//! use futures::StreamExt;
//! use turnstream::provider::{Reply, Scripted};
//! use turnstream::tool::{Tool, ToolSpec};
//! use turnstream::{Agent, Event};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnstream::Error> {
//! // A model that needs no key. `provider::from_env()?` returns a real one,
//! // of the vendor whose key is set.
//! let model = Scripted::new([
//!     Reply::text("Let me look.").call("temperature", serde_json::json!({ "city": "Oslo" })),
//!     Reply::text("It is 4 degrees in Oslo."),
//! ]);
//! let spec = ToolSpec::new(
//!     "temperature",
//!     "The temperature in a city, in degrees Celsius",
//!     serde_json::json!({
//!         "type": "object",
//!         "properties": { "city": { "type": "string" } },
//!         "required": ["city"],
//!     }),
//! );
//! let temperature = Tool::raw(spec, |_args, _cx| async { 4 })?;
//!
//! let mut run = Agent::new(model).with_tools([temperature]).run("How cold is it in Oslo?");
//! while let Some(event) = run.next().await {
//!     match event? {
//!         Event::Finished(outcome) => assert_eq!(outcome.text, "It is 4 degrees in Oslo."),
//!         event => print!("{}", event.text_delta().map_or("", |text| text)),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The types to know
//!
//! Most programs need no more than these twelve types. All of them are at the root of the crate,
//! except for the providers.
//!
//! | type | what it is |
//! |---|---|
//! | [`Agent`] | a provider, tools and settings, from which runs are started |
//! | [`Run`] | the stream of a run's events, with methods for controlling the run |
//! | [`RunHandle`] | a handle for controlling the run from elsewhere: steer, approve, interrupt |
//! | [`Event`] | an event from a run: a token, a tool's progress, a result |
//! | [`Outcome`] | how a run ended: the reason, the text, the history, the usage |
//! | [`Tool`] | a function that the model may call |
//! | [`History`] | the items of a conversation; O(1) to clone |
//! | [`Item`] | one element of a history: a message, reasoning, a tool call or a tool result |
//! | [`Request`] | a model's input for a single turn |
//! | [`TurnEvent`] | an event from a model's turn; a [`Turn`] is the complete turn |
//! | [`Step`] | an item that the body of a [`loop_stream`] yields: a value, the next state, or the end |
//! | [`Error`] | an error; its [`kind`](Error::kind) indicates how a caller can react to it |
//!
//! [`provider`] contains the models: [`Anthropic`](provider::Anthropic),
//! [`OpenAiChat`](provider::OpenAiChat), [`OpenAiResponses`](provider::OpenAiResponses),
//! [`Gemini`](provider::Gemini) and [`Ollama`](provider::Ollama) over HTTP, and
//! [`Scripted`](provider::Scripted), which needs no API key.
//!
//! # The path of the data
//!
//! ```text
//! History + tools ─ Request ─ encode ─▶ body ─ http ─▶ bytes ─ framing ─▶ frames
//!   ─ decode ─▶ TurnBuilder ─ seal ─▶ TurnStream of TurnEvent
//!   ─ on_turn_complete ─▶ Step ─ loop_stream ─▶ Event ─ journal ─▶ you
//!
//! and back, inside the body:
//! toolkit.run(&history, &turn) ─▶ ToolEvent ─ then_next ─▶ Step::Next(state)
//! ```
//!
//! Every arrow stands for a function on public types. A module only uses modules on lower floors:
//!
//! | floor | modules | what they contain |
//! |---|---|---|
//! | 12 | [`durable`] | runs on an engine that resumes them on any machine |
//! | | [`ui`] | runs as responses of a web server, for front ends |
//! | 11 | [`hub`] | runs that outlive their readers |
//! | | [`supervise`] | many runs as one stream |
//! | 10 | [`session`] | histories that are stored as they grow |
//! | | [`replay`] | runs that are recorded and replayed |
//! | | [`task`] | a stream that runs in its own task |
//! | 9 | [`agent`] | the ready-made loop: `decide`, its body, [`Run`], hooks, budgets, sub-agents |
//! | 8 | [`journal`] | [`Journal`]: the history, usage and outcome of a run, computed from the run's events |
//! | | [`context`] | token estimates, and ways to shorten a history |
//! | | [`world`] | everything that a run needs from its environment, in one trait |
//! | 7 | [`trace`] | [`Trace`]: one line for each step of a run, computed from the run's events |
//! | 6 | [`provider`], [`tool`](mod@tool) | models, and the functions that they may call |
//! | 5 | [`stream`], [`http`] | the loop, and the bytes |
//! | | [`partial`] | structured answers and arguments, while they arrive |
//! | 4 | [`event`] | everything that a consumer sees, as data |
//! | | [`framing`] | the bytes of an answer, split into frames |
//! | 3 | [`request`], [`turn`], [`sse`] | a single turn, as data |
//! | 2 | [`propagation`] | the trace contexts that connect requests and tools to a distributed trace |
//! | 1 | [`item`] | messages, calls and results, and the [`History`] that they form |
//! | 0 | [`error`], [`usage`], [`env`](mod@env) | errors, token counts, randomness and timers |
//!
//! # The guide
//!
//! The [`guide`] has a page for each task, such as [your first agent](guide::first_agent),
//! [tools](guide::tools), [approvals](guide::approvals), [a page in a browser](guide::front_ends),
//! [sessions](guide::sessions) and [many machines](guide::many_machines), and a reference, such as
//! [every limit](guide::defaults), [how a run ends](guide::how_a_run_ends), and [what later versions
//! keep](guide::versions). The lowest supported version of Rust is 1.91.
//!
//! # Guarantees
//!
//! - **Drop cancels.** Dropping a stream synchronously drops its connection, its running tools and
//!   its timers. The journal contains everything that happened before the drop.
//! - **Always sendable.** Any history that you can observe can be sent after a call to
//!   [`History::settled`], because every tool call then has exactly one result.
//! - **No phantom execution.** A tool runs only for a call in a complete turn whose stop reason
//!   allows tool calls. The call's arguments must match the tool's schema, and its id must not have
//!   been used before.
//! - **One end.** A run that is polled to its end yields exactly one [`Event::Finished`]. If the
//!   run failed, its error follows as an `Err`, so that `?` propagates the error.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `http` | yes | reqwest, and with it the providers that use a network |
//! | `rustls` | yes | TLS through rustls, with the platform's certificates |
//! | `native-tls` | | TLS through the platform's own library |
//! | `schemars` | yes | [`Tool::new`](tool::Tool), `Agent::with_output`: derive the schema of a tool or an answer from its type |
//! | `validate` | | a full JSON Schema validator for tools with a raw schema |
//! | `tracing` | | [`EventStreamExt::with_tracing`]: runs in the logs of the crate `tracing` |
//! | `macros` | | [`#[tool]`](macro@tool) and [`#[tools]`](macro@tools), which turn functions into tools |
//! | `skills` | | [`Skills`](tool::Skills), a folder of `SKILL.md` files as a source of tools |
//!
//! Each feature adds a dependency. Without the default features, the crate contains everything
//! else: the loop, the turn, the tools, the agent, the scripted model, sessions, the hub, front
//! ends, durable runs, and all encoders and decoders, but no HTTP stack.
//!
//! # Other crates
//!
//! Each integration with a protocol's SDK, a database or another server is a crate of its own:
//!
//! | crate | what it contains |
//! |---|---|
//! | `turnstream-mcp` | the tools of MCP servers |
//! | `turnstream-sqlite` | [sessions](guide::sessions) in a single SQLite file |
//! | `turnstream-postgres` | sessions in PostgreSQL, for [many machines](guide::many_machines) |
//! | `turnstream-redis` | a [hub](mod@hub) that spans [many machines](guide::many_machines), through Redis or Valkey |
//! | `turnstream-restate` | durable runs on Restate |
//! | `turnstream-prices` | published prices and context windows, for [budgets](guide::budgets) and [compaction](guide::compaction) |
//! | `turnstream-server` | a chat back end, and agents as models, which any client of OpenAI, Anthropic, Gemini or Ollama can call |
//! | `turnstream-otel` | spans and metrics by OpenTelemetry's conventions for generative AI |
//! | `turnstream-macros` | the macros of the feature `macros`; do not depend on it |
//! | `turnstream-testing` | servers and test suites for tests: a model server and an MCP server on the loopback device, and suites for providers, stores, event logs and engines |
//! | `turnstream-cli` | the program `turnstream`: an agent for the command line |
//!
//! [`TurnEvent`]: turn::TurnEvent
//! [`Step`]: stream::Step
//! [`loop_stream`]: stream::loop_stream
//! [`durable`]: mod@durable
//! [`hub`]: mod@hub
//! [`task`]: mod@task
//! [`ui`]: mod@ui
// Without these features, links to the items of those features have no target.
#![cfg_attr(
    not(all(feature = "http", feature = "macros", feature = "skills", feature = "tracing")),
    allow(rustdoc::broken_intra_doc_links)
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod debug;

pub mod agent;
mod chunked_bytes;
pub mod context;
pub mod durable;
pub mod env;
pub mod error;
pub mod event;
mod fnv;
pub mod framing;
pub mod guide;
pub mod http;
pub mod hub;
pub mod item;
pub mod journal;
mod json_lines;
mod lock;
pub mod partial;
pub mod propagation;
pub mod provider;
pub mod replay;
pub mod request;
pub mod session;
mod small_map;
pub mod sse;
mod store_thread;
pub mod stream;
pub mod supervise;
pub mod task;
pub mod tool;
pub mod trace;
pub mod turn;
pub mod ui;
pub mod usage;
pub mod world;

pub use agent::{Agent, Run, RunHandle};
pub use error::{Error, ErrorKind};
pub use event::{Event, Outcome};
pub use item::{History, Item};
pub use journal::{EventStreamExt, Journal};
pub use provider::Provider;
pub use request::Request;
pub use stream::{Step, Steps, TurnStream, TurnStreamExt, loop_over, loop_stream, loop_with_state};
pub use tool::{Tool, Toolkit};
pub use trace::Trace;
pub use turn::{Turn, TurnEvent};
pub use usage::Usage;

#[cfg(feature = "macros")]
pub use turnstream_macros::{tool, tools};

/// The crates that the code of the macros uses.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod __macros {
    pub use {schemars, serde};
}

/// The README's examples, run as tests.
#[cfg(all(doctest, feature = "http", feature = "macros"))]
#[doc = include_str!("../README.md")]
struct Readme;
