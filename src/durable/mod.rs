//! Runs on an engine that resumes them on any machine.
//!
//! A durable engine performs each operation of a program once, and keeps what it came to. When the process dies, the
//! engine starts the program again elsewhere, and answers the operations that it has kept. An agent runs on such an
//! engine unchanged: an [`Attempt`] performs its run, and each effect of the run is a step of an [`Engine`].
//!
//! ```
//! use turnstream::Agent;
//! use turnstream::durable::{Attempt, MemoryEngine};
//! use turnstream::provider::Scripted;
//! use turnstream::session::restore_history;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnstream::Error> {
//! let agent = Agent::new(Scripted::new(["Hello!"]));
//! let mut engine = MemoryEngine::new();
//! Attempt::run(&agent, "chat-1", engine.entries(), "Hi").drive(&mut engine).await?;
//! assert_eq!(restore_history("chat-1", engine.entries()).len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! [`MemoryEngine`] is for tests. The package `turnstream-restate`, in the folder `durable` of the repository, has the
//! engine, the worker and the client for [Restate](https://restate.dev). The guide tells when you need one:
//! [on many machines](crate::guide::many_machines).
//!
//! # What is performed how often
//!
//! | | if its attempt is lost while it is performed |
//! |---|---|
//! | a request to the model, a hook that takes time, a compaction, a step of a body | performed again by the next attempt |
//! | a call of an [idempotent](crate::Tool::idempotent) tool | performed again, under the same [key](crate::tool::ToolContext::idempotency_key) |
//! | any other call | never begins again: the model reads that it was interrupted |
//! | a sub-agent | as its call: a tool that is made of an agent is idempotent only if it is set |
//! | a hook that returns at once | may be asked again, until the next step is kept |
//! | a hook that observes | told in each attempt, also of what was kept |
//!
//! Once an operation is kept, it is not performed again. Retries of a provider and the deadlines of a request are inside
//! of its step. A time limit counts from the beginning of each attempt, and the tokens of a lost attempt are not known.
//! A [pool](crate::agent::Pool) is charged for kept turns in each process that replays them.
//!
//! # An attempt, from one step to the next
//!
//! ```text
//! engine          attempt                                   run
//!   │   ◀── step ── asks for the next step
//!   ├── not kept: polls the step's future ──▶ polls it ──▶ takes the value of the step before,
//!   │                                                      draws ids and facts, performs its next effect
//!   │   ◀── the effect's value, with what was drawn ────────┘
//!   ├── keeps it ──▶ gives out results, saves entries
//!   │
//!   └── kept: returns the value ──▶ polls it ──▶ the same, but the effect is dropped without a poll
//! ```
//!
//! - **One operation at a time.** The attempt asks for a step before it polls the run, so it knows what was drawn before
//!   the run draws it. The run and at most one operation are polled by one task; nothing is spawned.
//! - **Deltas are not kept.** Readers get them while the step is performed. Kept steps are repeated as complete
//!   turns and results.
//! - **Effects that are ready when they are first polled** do not take a step: their values are kept with the
//!   next one. So an agent without hooks has a step for each turn, two for its calls, and one for the end of the run.
//! - **Calls take two steps.** The first says which calls may start, and in which attempt; the second has their results.
//!   If several calls [can](Engine::can_call_tools) run apart, the engine [runs them](Engine::call_tools) in between,
//!   each with steps of its own. Calls that are exclusive, sub-agents, and tools of
//!   [sources](crate::tool::ToolSource) run in the run's step.
//! - **The program has to stay the same** during a run. An attempt that asks for another effect than the attempt
//!   before it ends with [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch), and the engine tries again: with the
//!   right program the run continues.
//!
//! # Commands, approvals, the end
//!
//! Commands wait in a [`CommandQueue`] that the engine keeps. A run takes them before its first step, after each turn
//! and after its calls. A receipt says that a command is stored; the event
//! [`Appended`](crate::Event::Appended) with its id says that input was delivered. Input that comes too late goes back
//! and is delivered by the next run.
//!
//! A run that needs an approval ends as pending, and costs nothing while it waits: [`Attempt::resume`] continues it.
//! An [interactive](crate::Agent::interactive) agent waits for verdicts in the engine, for as long as its time limit
//! allows.
//!
//! An [interrupt](crate::hub::Command::Interrupt) through a [hub](Attempt::with_hub) ends the step that runs. The
//! step is kept as far as it got, so that later attempts end there, too.
//!
//! # Readers
//!
//! [`Attempt::with_hub`] shows a run in a [hub](crate::hub), whose log may be in Redis. The next attempt takes the next
//! epoch of the log: readers get a snapshot of what was kept, and the words of the lost attempt are void. Results are
//! given out once they are kept, and the end when everything else is done.
//!
//! # An engine of your own
//!
//! Implement [`StepRunner`] and [`Engine`], and test them with `durable::suite` (feature `testing`). A later attempt calls the
//! same operations with the same bytes, so an engine may compare them.
//!
//! Besides the steps of its runs, an engine keeps these for a session:
//!
//! | | what it has |
//! |---|---|
//! | [`SessionSegments`] | the entries, in small values of a key-value store |
//! | [`SessionStatus`] | how many entries there are, what the session waits for, and the active run |
//! | [`CommandQueue`] | the commands that wait for a run, and those who wait for commands |
//! | [`GivenVerdicts`] | the verdicts so far on pending calls |
//!
//! [`copy_session`] keeps a copy of a session in a [`Store`](crate::session::Store), for lists and search.

mod attempt;
mod bridge;
mod call_link;
mod command_queue;
mod copy_session;
mod engine;
#[cfg(feature = "testing")]
mod faulty_engine;
mod given_verdicts;
mod journaled_world;
mod memory_engine;
mod publisher;
mod session_segments;
mod session_status;
mod step_record;
#[cfg(feature = "testing")]
pub mod suite;
mod tool_call;

pub use attempt::Attempt;
pub use command_queue::{CommandQueue, CommandWaiter, WaitAnswer};
pub use copy_session::copy_session;
pub use engine::{
    AttemptLost, Engine, StepFuture, StepRunner, StoredCommand, ToolCallRequest, is_attempt_lost,
};
#[cfg(feature = "testing")]
pub use faulty_engine::{FaultyEngine, Loss, LossMoment, LossPlan};
pub use given_verdicts::{AddedVerdict, GivenVerdicts};
pub use memory_engine::MemoryEngine;
pub use session_segments::{SegmentWrite, SessionSegments};
pub use session_status::SessionStatus;
