//! The guide: a page for each task, and a reference.
//!
//! # Begin
//!
//! | page | topic |
//! |---|---|
//! | [Your first agent](first_agent) | nine steps from an empty folder to an agent with tools, a budget, approvals and a session |
//! | [Coming from rig, async-openai or the AI SDK](coming_from) | the names of these libraries, and of this crate |
//! | [What it does not do](not_included) | features that the crate does not have, and what to use instead |
//!
//! # Tasks
//!
//! | to | read |
//! |---|---|
//! | chat with a model that has tools, in a terminal | [A chat with a tool and Ctrl-C](control#a-chat-with-a-tool-and-ctrl-c) |
//! | stop a run, send it input, remove items | [Stop and steer](control) |
//! | let a person decide about calls | [Approvals](approvals) |
//! | write tools | [Tools](tools), [Skills](skills), [Images and files](media) |
//! | get an answer as a Rust type | [Structured output](structured_output) |
//! | choose a model | [Providers, credentials, dialects](providers) |
//! | limit tokens, money, time and calls | [Budgets](budgets) |
//! | continue a conversation that outgrows the context window | [Compaction](compaction) |
//! | keep a conversation after a crash | [Sessions](sessions) |
//! | serve a page in a browser | [UI protocols and the hub](front_ends) |
//! | perform many jobs, or watch many runs | [A worker](worker), [Supervisors](supervisors) |
//! | run on many machines | [From one process to many machines](many_machines) |
//! | let agents work together | [Sub-agents](sub_agents) |
//! | hand a conversation to another agent | [Hand a conversation over](handoff) |
//! | let a run complete only after a check has passed | [Evidence](evidence) |
//! | run your own code in the loop, or write the loop | [Hooks](hooks), [Your own loop](own_loop) |
//! | use your own provider, store or policy | [Write your own](extending) |
//! | test without a key | [Record and replay](replay), and [the guide of `turnstream-testing`](https://docs.rs/turnstream-testing/latest/turnstream_testing/guide/) |
//! | see what an agent did | [Traces](trace), and [the guide of `turnstream-otel`](https://docs.rs/turnstream-otel/latest/turnstream_otel/guide/) |
//!
//! # Reference
//!
//! | page | topic |
//! |---|---|
//! | [Every limit, timeout and retry](defaults) | the default values and the settings that change them |
//! | [The events of a run](events) | every event, in Rust and as JSON |
//! | [How a run ends](how_a_run_ends) | outcomes, end reasons, broken turns, and why a run continues |
//! | [Cancellation](cancellation) | what dropping a stream stops, and what is kept |
//! | [Performance](performance) | the cost of a token and of a turn |
//! | [Versions and stored formats](versions) | what later versions keep, and the systems that are tested |
//! | [Architecture and glossary](architecture) | five ways through the files, and the crate's words |
#![cfg_attr(
    not(all(feature = "http", feature = "schemars")),
    allow(rustdoc::broken_intra_doc_links, reason = "pages link to items of other features")
)]

#[doc = include_str!("links.md")]
#[cfg_attr(all(feature = "http", feature = "schemars"), doc = include_str!("first_agent.md"))]
pub mod first_agent {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("how_a_run_ends.md"))]
pub mod how_a_run_ends {}

#[doc = include_str!("links.md")]
#[doc = include_str!("events.md")]
pub mod events {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("control.md"))]
pub mod control {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("approvals.md"))]
pub mod approvals {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("budgets.md"))]
pub mod budgets {}

#[doc = include_str!("links.md")]
#[doc = include_str!("compaction.md")]
pub mod compaction {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("evidence.md"))]
pub mod evidence {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("hooks.md"))]
pub mod hooks {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("structured_output.md"))]
pub mod structured_output {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("sub_agents.md"))]
pub mod sub_agents {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("handoff.md"))]
pub mod handoff {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("own_loop.md"))]
pub mod own_loop {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("tools.md"))]
pub mod tools {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "skills", doc = include_str!("skills.md"))]
pub mod skills {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("media.md"))]
pub mod media {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "http", doc = include_str!("providers.md"))]
pub mod providers {}

#[doc = include_str!("links.md")]
#[doc = include_str!("defaults.md")]
pub mod defaults {}

#[doc = include_str!("links.md")]
#[doc = include_str!("cancellation.md")]
pub mod cancellation {}

#[doc = include_str!("links.md")]
#[cfg_attr(all(feature = "http", feature = "schemars"), doc = include_str!("extending.md"))]
pub mod extending {}

#[doc = include_str!("links.md")]
#[doc = include_str!("performance.md")]
pub mod performance {}

#[doc = include_str!("links.md")]
#[doc = include_str!("supervisors.md")]
pub mod supervisors {}

#[doc = include_str!("links.md")]
#[doc = include_str!("front_ends.md")]
pub mod front_ends {}

#[doc = include_str!("links.md")]
#[doc = include_str!("sessions.md")]
pub mod sessions {}

#[doc = include_str!("links.md")]
#[doc = include_str!("worker.md")]
pub mod worker {}

#[doc = include_str!("links.md")]
#[doc = include_str!("replay.md")]
pub mod replay {}

#[doc = include_str!("links.md")]
#[doc = include_str!("trace.md")]
pub mod trace {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "http", doc = include_str!("many_machines.md"))]
pub mod many_machines {}

#[doc = include_str!("links.md")]
#[doc = include_str!("versions.md")]
pub mod versions {}

#[doc = include_str!("links.md")]
#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("coming_from.md"))]
pub mod coming_from {}

#[doc = include_str!("links.md")]
#[doc = include_str!("not_included.md")]
pub mod not_included {}
