//! The guide, with one page per topic.
//!
//! # Agents
//!
//! | page | topic |
//! |---|---|
//! | [Your first agent](first_agent) | twelve steps from an empty folder to an agent with tools, a budget, approvals and a session |
//! | [How a run ends](how_a_run_ends) | outcomes, end reasons, broken turns, and why a run continues |
//! | [The events of a run](events) | every event, in Rust and as JSON |
//! | [Stop, steer, approve](control) | a chat with Ctrl-C: stop a run, send input to it, and approve its tool calls |
//! | [Budgets](budgets) | limits on tokens, money, time and calls, for one agent or a tree of agents |
//! | [Compaction](compaction) | continue a conversation that outgrows the context window |
//! | [Evidence](evidence) | let a run complete only after a check has passed, and detect runs that go wrong |
//! | [Hooks](hooks) | run your own code at fixed points of the loop |
//! | [Sub-agents](sub_agents) | use an agent as a tool of another agent |
//! | [Your own loop](own_loop) | write a loop yourself, or change one line of the agent's loop |
//!
//! # Tools and models
//!
//! | page | topic |
//! |---|---|
//! | [Tools](tools) | arguments, results, concurrency, search |
//! | [Skills](skills) | folders of instructions that a model loads when it needs them |
//! | [Structured output](structured_output) | an answer as a Rust type, and rules of your own |
//! | [Images and files](media) | in messages, in the results of tools, and what each provider accepts |
//! | [Providers, credentials, dialects](providers) | models, credentials, and what each wire supports |
//! | [Every limit, timeout and retry](defaults) | the default values and the settings that change them |
//! | [Cancellation, floor by floor](cancellation) | what dropping a stream stops, and what is kept |
//! | [Write your own: provider, wire, store, hook, tool policy](extending) | the traits to implement, with an example for each |
//! | [Performance](performance) | the cost of a token and of a turn |
//!
//! # Around a run
//!
//! | page | topic |
//! |---|---|
//! | [UI protocols and the hub](front_ends) | server-sent events, the AI SDK, AG-UI, and runs that outlive their readers |
//! | [Sessions](sessions) | when data becomes durable, and what happens after a crash |
//! | [A worker](worker) | perform many jobs with agents, and end cleanly on SIGTERM |
//! | [Supervisors](supervisors) | many runs as one stream, with restarts and a limit for silence |
//! | [Record and replay](replay) | record a run, and run it again from the recording |
//! | [Traces](trace) | one trace event for each step of a run |
//! | [From one process to many machines](many_machines) | shared sessions, shared events, durable runs |
//!
//! # About the crate
//!
//! | page | topic |
//! |---|---|
//! | [Architecture and glossary](architecture) | the data flow, the crate's floors and a glossary |
//! | [Coming from rig, async-openai or the AI SDK](coming_from) | the same program in each of these libraries and in this crate |
//! | [What it does not do](not_included) | features that the crate does not have, and what to use instead |
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
#[cfg_attr(feature = "http", doc = include_str!("extending.md"))]
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
#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("coming_from.md"))]
pub mod coming_from {}

#[doc = include_str!("links.md")]
#[doc = include_str!("not_included.md")]
pub mod not_included {}
