//! Durable runs, which an engine can continue on any machine.
//!
//! A durable engine performs each operation of a program once and records its result. If the
//! process dies, the engine starts the program again elsewhere and supplies the recorded results
//! instead of performing the recorded operations again. An agent needs no changes to run on such an
//! engine. An [`Attempt`] executes the agent's run, and each effect in the run, such as a model
//! turn, is a step on an [`Engine`].
//!
//! ```
//! use turnstream::Agent;
//! use turnstream::durable::Attempt;
//! use turnstream::provider::Scripted;
//! use turnstream::session::restore_history;
//! use turnstream_testing::durable_suite::MemoryEngine;
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
//! The engine of this example is for tests. The package `turnstream-restate` contains the engine,
//! the worker and the client for [Restate](https://restate.dev). The guide explains when you need a
//! durable engine: [from one process to many machines](crate::guide::many_machines).
//!
//! # How often an operation is performed
//!
//! | operation | if the attempt is lost in the meantime |
//! |---|---|
//! | a model request, a hook that takes time, a compaction, a step in a loop body | the next attempt repeats it |
//! | a call to an [idempotent] tool | the next attempt performs it again, under the same [key] |
//! | any other call | the call is not started again; the model receives an interrupted result |
//! | a sub-agent | treated like the call that started it; a tool made from an agent is idempotent only if marked so |
//! | a hook that returns immediately | may be called again until the next step is recorded |
//! | a hook that only observes | is called in each attempt, even for recorded operations |
//!
//! A recorded operation is never performed again. The provider's retries and the request's
//! deadlines apply within a single step. The run's time limit starts over with each attempt, and
//! the number of tokens used by a lost attempt is unknown. Each process that replays recorded turns
//! charges their tokens to its own [pool](crate::agent::Pool).
//!
//! # The steps of an attempt
//!
//! ```text
//! engine          attempt                          run
//!   │   ◀── step ── calls `step` of the engine
//!   ├── not recorded: polls the step's future ──▶ takes the previous step's value,
//!   │                                             draws ids and facts,
//!   │                                             performs its next effect
//!   │   ◀── the effect's value, with the drawn values ───┘
//!   ├── records it ──▶ publishes results, saves entries
//!   │
//!   └── recorded: returns the value ────────────▶ the same, but the effect is
//!                                                 dropped without a poll
//! ```
//!
//! - **One operation at a time.** The attempt calls the engine's `step` before it polls the run. As
//!   a result, the attempt knows a step's recorded values before the run needs them. A single task
//!   polls the run and at most one operation; no other task is spawned.
//! - **Deltas are not recorded.** Readers receive deltas while a step is being performed. Recorded
//!   steps are replayed as complete turns and results.
//! - **Effects that are ready on the first poll** have no steps of their own. The values of these
//!   effects are recorded with the next step. As a result, an agent without hooks has one step for
//!   each turn, two for the calls in a turn, and one for the end of the run.
//! - **The calls in a turn take two steps.** The first step records which calls may start, and in
//!   which attempt; the second records their results. If the engine [can](Engine::can_call_tools)
//!   execute several calls separately from the run, it [runs them](Engine::call_tools) between
//!   these two steps, and each call has its own steps. Exclusive calls, sub-agents and tools from
//!   [tool sources](crate::tool::ToolSource) run in the second step. If a run resumes calls, the
//!   attempt saves [`Entry::Resumed`](crate::session::Entry::Resumed) between the two steps. A
//!   later run does not start these calls again, even if this run never continues, unless their
//!   tools are idempotent and were idempotent when the first step was recorded. The same holds for
//!   a later attempt at this run.
//! - **The program must stay the same** during a run. If an attempt requests an effect that differs
//!   from the recorded effect, the attempt ends with
//!   [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch), and the engine tries again. The run
//!   continues once the original program is back.
//!
//! # Commands, approvals, the end
//!
//! Commands wait in a [`CommandQueue`](storage::CommandQueue), which the engine stores. A run takes
//! the waiting commands before its first step, after each turn and after the turn's calls. A
//! receipt confirms that a command is stored. The [`Appended`](crate::Event::Appended) event with
//! the receipt's id reports that the input was delivered. Input that arrives too late for a run is
//! returned to the queue, and the next run delivers it.
//!
//! A run that needs approval ends with its calls pending, and uses no resources until
//! [`Attempt::resume`] continues it. A run of an [interactive](crate::Agent::interactive) agent, on
//! the other hand, stays active and waits until verdicts arrive through the engine or until its
//! time limit expires. The session's [status](storage::SessionStatus::pending_calls) lists the
//! calls that need a verdict. A verdict answers a single request: a verdict that answers no open
//! request is a [`Conflict`](crate::ErrorKind::Conflict), and a waiting run discards it.
//!
//! The queue accepts at most 8 MiB of commands that wait for a run or that the active run has not
//! delivered. A step has place for this input beside the largest turn, so input never ends a run,
//! or the next run, with an error.
//!
//! An [interrupt](crate::hub::Command::Interrupt) through a [hub](Attempt::with_hub) ends the step
//! that is being performed. The engine records the part of the step that was completed, so that
//! later attempts end at the same position.
//!
//! # Readers
//!
//! [`Attempt::with_hub`] shows a run in a [hub](crate::hub), whose log can be stored in Redis. Each
//! attempt writes to the log under a new epoch. After a lost attempt, readers receive a snapshot of
//! the recorded events, and the lost attempt's incomplete turn is void. Results are published once
//! they have been recorded, and the end of the run is published once everything else is done.
//!
//! # An engine of your own
//!
//! To write your own engine, implement [`StepRunner`] and [`Engine`], and test both implementations
//! with `durable_suite!` in the crate `turnstream-testing`. A later attempt calls the same
//! operations with the same arguments, byte for byte, so an engine may compare the arguments.
//!
//! In addition to the steps of its runs, an engine stores the entries of each session, its status,
//! the commands that wait and the verdicts given so far. The types for this data are in
//! [`storage`].
//!
//! [idempotent]: crate::Tool::idempotent
//! [key]: crate::tool::ToolContext::idempotency_key
//!
//! # Limits
//!
//! These limits have no setter. Those of an engine are in the docs of its crate.
//!
//! | limit | value | when it is reached |
//! |---|---|---|
//! | size of a turn, or of the results of its calls, in a step | 8 MiB | the run ends with a `too_large` error |
//! | size of all other values in a step, such as delivered input and the notes of hooks | 16 MiB | the run ends with a `too_large` error |
//! | size of the result of a call that is executed separately | 8 MiB | the call gets a result of kind `error` |
//! | size of a progress report from a call that is executed separately | 64 KiB | the report is dropped |
//! | progress reports queued by a call that is executed separately | 64 | the oldest report is dropped |
//! | progress reports queued for a run by its separately executed calls | 256 | further reports are dropped |
//! | time to send a separately executed call's last progress reports | 1 s | the remaining reports are dropped |
//! | size of a value in [`SessionSegments`] | 64 KiB | the entries are split into several values |
//! | size of all input that waits for a run, or that the active run has not delivered; size of all verdicts that wait | 8 MiB | further input, or a further verdict, is rejected with a `too_large` error |
//! | commands that wait for a run | 1,000 | further commands are rejected with an `overloaded` error, except those that end the run |
//! | commands of each kind that ends a run | 1 | a further command is not stored, because it would change nothing |
//! | length of a command's id | 1 KiB | the command is rejected with a `too_large` error |
//! | attempts of [`copy_session`] while other writers change the copy | 8 | a `conflict` error |
//!
//! [`SessionSegments`]: crate::durable::storage::SessionSegments
//! [`copy_session`]: crate::durable::storage::copy_session()

mod attempt;
mod bridge;
mod call_link;
mod driver;
mod engine;
mod journaled_world;
mod publisher;
mod run_commands;
mod run_entries;
mod step_record;
pub mod storage;
mod tool_call;

pub use attempt::Attempt;
pub use engine::{
    AttemptLost, Engine, StepFuture, StepRunner, StoredCommand, ToolCallRequest, is_attempt_lost,
};
