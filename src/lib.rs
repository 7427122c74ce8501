//! Agents as streams you pull.
//!
//! A turn of a language model is a stream of [`TurnEvent`]s. An agent is that stream, repeated: a
//! body turns a state into a stream of [`Step`]s, and [`loop_stream`] runs the body again for as
//! long as the steps say so. Nothing is spawned and nothing is queued. The next request is sent
//! when the consumer asks for the next item, and dropping the stream stops everything under it.
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
//! Most programs need no more than these twelve. All are at the root of the crate, except for the providers.
//!
//! | type | what it is |
//! |---|---|
//! | [`Agent`] | a provider, tools and settings, from which runs are started |
//! | [`Run`] | the stream of a run's events, with methods to act on the run |
//! | [`RunHandle`] | the same actions from elsewhere: steer, approve, interrupt |
//! | [`Event`] | one event of a run: a token, a tool's progress, a result |
//! | [`Outcome`] | how a run ended: the reason, the text, the history, the usage |
//! | [`Tool`] | a function that the model may call |
//! | [`History`] | the items of a conversation; O(1) to clone |
//! | [`Item`] | one message, tool call or tool result of a history |
//! | [`Request`] | the input of a model for one turn |
//! | [`TurnEvent`] | one event of a model's turn; a [`Turn`] is the finished whole |
//! | [`Step`] | an item of a body of [`loop_stream`]: a value, the next state, or the end |
//! | [`Error`] | an error; its [`kind`](Error::kind) says what a caller can do about it |
//!
//! [`provider`] has the models: [`Anthropic`](provider::Anthropic), [`OpenAiChat`](provider::OpenAiChat),
//! [`OpenAiResponses`](provider::OpenAiResponses), [`Gemini`](provider::Gemini) and
//! [`Ollama`](provider::Ollama) over HTTP, and [`Scripted`](provider::Scripted), which needs no key.
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
//! Every arrow is a function on public types. A module uses modules on lower floors, and no neighbour on its own:
//!
//! | floor | modules | |
//! |---|---|---|
//! | 11 | `durable` | runs on an engine that resumes them on any machine |
//! | | `ui` | runs as responses of a web server, for front ends |
//! | | `mcp` | the tools of MCP servers |
//! | 10 | `hub` | runs that outlive their readers |
//! | 9 | [`session`] | histories that are stored while they grow |
//! | | [`replay`] | runs that are recorded and replayed |
//! | | `task` | a stream in a task of its own |
//! | | `testing` | a loopback server that speaks a wire from a script, and a scripted MCP server |
//! | 8 | [`agent`] | the ready-made loop: `decide`, its body, [`Run`], hooks, budgets, sub-agents |
//! | 7 | [`journal`] | [`Journal`]: the history, usage and outcome of a run, folded from its events |
//! | | [`context`] | token estimates, and how a history gets shorter |
//! | | [`world`] | everything that a run needs from outside, in one trait |
//! | 6 | [`trace`] | [`Trace`]: one line for each step of a run, folded from its events |
//! | 5 | [`provider`], [`tool`] | models, and the functions they may call |
//! | 4 | [`stream`], [`http`] | the loop, and the bytes |
//! | 3 | [`event`] | everything that a consumer sees, as data |
//! | | [`framing`] | the bytes of an answer, cut into frames |
//! | 2 | [`request`], [`turn`], [`sse`] | one turn, as data |
//! | 1 | [`item`] | messages, calls and results, and the [`History`] that they form |
//! | 0 | [`error`], [`usage`], [`env`](mod@env) | |
//!
//! # The guide
//!
//! The [`guide`] has one topic a page:
//!
//! | | |
//! |---|---|
//! | begin | [your first agent](guide::first_agent), [coming from other libraries](guide::coming_from), [testing](guide::testing) |
//! | the agent | [how a run ends](guide::how_a_run_ends), [its events](guide::events), [stop, steer, approve](guide::control), [budgets](guide::budgets), [compaction](guide::compaction), [evidence](guide::evidence), [hooks](guide::hooks), [sub-agents](guide::sub_agents), [your own loop](guide::own_loop) |
//! | models and tools | [providers](guide::providers), [tools](guide::tools), [MCP servers](guide::mcp), [extensions of your own](guide::extending) |
//! | around a run | [sessions](guide::sessions), [front ends](guide::front_ends), [replay](guide::replay), [traces](guide::trace), [many machines](guide::many_machines) |
//! | reference | [every limit and default](guide::defaults), [cancellation](guide::cancellation), [performance](guide::performance), [architecture and glossary](guide::architecture), [what it does not do](guide::not_included) |
//!
//! # Guarantees
//!
//! - **Drop cancels.** Dropping a stream synchronously drops the connection, the running tools and the
//!   timers under it. The journal has everything until then.
//! - **Always sendable.** Any history that you can see can be sent after [`History::settled`]: every
//!   tool call has exactly one result.
//! - **No phantom execution.** A tool runs only for a call of a complete turn whose stop reason allows
//!   it, with arguments that fit its schema, under an id that was not used before.
//! - **One end.** A run ends with exactly one [`Event::Finished`]. If it failed, its error follows as
//!   an `Err`, so that `?` propagates it.
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `http` | yes | reqwest, and with it the providers that speak over a network |
//! | `rustls` | yes | TLS by rustls with the platform's certificates |
//! | `native-tls` | | TLS by the platform's own library |
//! | `schemars` | yes | [`Tool::new`](tool::Tool), `Agent::with_output`: the schema of a tool or an answer from its type |
//! | `validate` | | a full JSON Schema validator for tools with a raw schema |
//! | `sqlite` | | `SqliteStore`: [sessions](session) in one SQLite file |
//! | `postgres` | | `PostgresStore`: sessions in PostgreSQL, for [many machines](guide::many_machines) |
//! | `task` | | `in_task`: a stream continues while its consumer pauses |
//! | `hub` | | runs that continue without a reader |
//! | `redis` | | a hub over many machines |
//! | `durable` | | runs on an engine that resumes them on any machine |
//! | `ui` | | runs as responses of a web server, for front ends |
//! | `mcp` | | rmcp, and with it the tools of MCP servers |
//! | `tool-search` | | `Toolkit::searchable`: a model [searches](guide::tools) for tools instead of reading the whole list |
//! | `testing` | | a loopback server for tests, on tokio's net, a scripted MCP server, and the tests of a provider and of a store of sessions |
//!
//! Without default features there is the loop, the turn, the tools, the agent and the scripted
//! model, all encoders and decoders, and no HTTP stack.
//!
//! [`TurnEvent`]: turn::TurnEvent
//! [`Step`]: stream::Step
//! [`loop_stream`]: stream::loop_stream
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod agent;
pub mod context;
#[cfg(feature = "durable")]
pub mod durable;
pub mod env;
pub mod error;
pub mod event;
mod fnv;
pub mod framing;
pub mod guide;
pub mod http;
#[cfg(feature = "hub")]
pub mod hub;
pub mod item;
pub mod journal;
mod json_lines;
mod lock;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod provider;
pub mod replay;
pub mod request;
pub mod session;
mod small_map;
pub mod sse;
pub mod stream;
#[cfg(feature = "task")]
pub mod task;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;
pub mod trace;
pub mod turn;
#[cfg(feature = "ui")]
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

/// The README's examples, run as tests.
#[cfg(all(doctest, feature = "http", feature = "schemars"))]
#[doc = include_str!("../README.md")]
struct Readme;
