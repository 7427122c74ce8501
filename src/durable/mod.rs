//! Durable runs, which an engine continues on any machine.
//!
//! A durable engine performs each operation of a program once and records the operation's result. When the process
//! dies, the engine starts the program again elsewhere, and answers the recorded operations with their results. An
//! agent needs no changes for such an engine. An [`Attempt`] performs the agent's run, and each effect of the run, such
//! as a turn of the model, is a step of an [`Engine`].
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
//! [`MemoryEngine`] is for tests. The package `turnstream-restate`, in the folder `durable` of the repository, contains
//! the engine, the worker and the client for [Restate](https://restate.dev). The guide explains when you need one:
//! [from one process to many machines](crate::guide::many_machines).
//!
//! # How often an operation is performed
//!
//! | operation | if the attempt is lost meanwhile |
//! |---|---|
//! | a model request, a hook that takes time, a compaction, a step of a body | the next attempt performs it again |
//! | a call of an [idempotent] tool | the next attempt performs it again, under the same [key] |
//! | any other call | it is not started again; the model reads that it was interrupted |
//! | a sub-agent | like its call; the tool made of an agent is idempotent only if you set that |
//! | a hook that returns immediately | may be called again until the next step is recorded |
//! | a hook that observes | called in each attempt, also for recorded operations |
//!
//! A recorded operation is never performed again. A step includes the retries of its provider and the deadlines of its
//! request. A time limit of the run starts again with each attempt, and the tokens used by a lost attempt are not
//! known. Each process that replays recorded turns charges their tokens to its [pool](crate::agent::Pool).
//!
//! # The steps of an attempt
//!
//! ```text
//! engine          attempt                                   run
//!   │   ◀── step ── calls `step` of the engine
//!   ├── not recorded: polls the step's future ──▶ polls it ──▶ takes the value of the previous step,
//!   │                                                          draws ids and facts, performs its next effect
//!   │   ◀── the effect's value, with the drawn values ──────────┘
//!   ├── records it ──▶ publishes results, saves entries
//!   │
//!   └── recorded: returns the value ──▶ polls it ──▶ the same, but the effect is dropped without a poll
//! ```
//!
//! - **One operation at a time.** The attempt calls the engine's `step` before it polls the run. So the attempt knows
//!   the recorded values of a step before the run draws them. One task polls the run and at most one operation; no task
//!   is spawned.
//! - **Deltas are not recorded.** Readers receive deltas while the step is performed. Recorded steps are replayed as
//!   complete turns and results.
//! - **Effects that are ready on the first poll** have no steps of their own. The values of these effects are recorded
//!   with the next step. So an agent without hooks has one step for each turn, two for the calls of a turn, and one for
//!   the end of the run.
//! - **The calls of a turn take two steps.** The first step records which calls may start, and in which attempt; the
//!   second records their results. If several calls can [run apart](Engine::can_call_tools), the engine [runs
//!   them](Engine::call_tools) between these steps, each with steps of its own. Exclusive calls, sub-agents and tools
//!   of [tool sources](crate::tool::ToolSource) run in the second step.
//! - **The program must stay the same** during a run. If an attempt requests another effect than the recorded effect,
//!   the attempt ends with [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch), and the engine tries again. The run
//!   continues when the original program is back.
//!
//! # Commands, approvals, the end
//!
//! Commands wait in a [`CommandQueue`], which the engine stores. A run takes the waiting commands before its first
//! step, after each turn and after its calls. A receipt confirms that a command is stored. The event
//! [`Appended`](crate::Event::Appended) with the receipt's id reports that the input was delivered. Input that arrives
//! too late returns to the queue, and the next run delivers it.
//!
//! A run that needs an approval ends as pending, and needs no resources until [`Attempt::resume`] continues it. The run
//! of an [interactive](crate::Agent::interactive) agent stays active instead. An interactive run waits for verdicts in
//! the engine until its time limit is reached.
//!
//! An [interrupt](crate::hub::Command::Interrupt) through a [hub](Attempt::with_hub) ends the running step. The engine
//! records the part of the step that was performed, so that later attempts end at the same position.
//!
//! # Readers
//!
//! [`Attempt::with_hub`] shows a run in a [hub](crate::hub), whose log may be in Redis. Each attempt writes the log
//! under a new epoch. After a lost attempt, readers receive a snapshot of the recorded events, and the incomplete turn
//! of the lost attempt is void. Results are published after they are recorded, and the end of the run is published
//! after everything else is done.
//!
//! # An engine of your own
//!
//! Implement [`StepRunner`] and [`Engine`], and test both implementations with `durable::suite` (feature `testing`). A
//! later attempt calls the same operations with the same bytes, so an engine may compare the arguments.
//!
//! In addition to the steps of its runs, an engine stores this data for each session:
//!
//! | type | content |
//! |---|---|
//! | [`SessionSegments`] | the entries, in small values of a key-value store |
//! | [`SessionStatus`] | the number of entries, the state after the last run, and the active run |
//! | [`CommandQueue`] | the commands that wait for a run, and the waiters for commands |
//! | [`GivenVerdicts`] | the verdicts on pending calls so far |
//!
//! [`copy_session`] copies a session to a [`Store`](crate::session::Store), for lists and search.
//!
//! [idempotent]: crate::Tool::idempotent
//! [key]: crate::tool::ToolContext::idempotency_key

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
