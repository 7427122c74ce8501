//! Provides a ready-made agent, which combines a provider, a toolkit and a history in a loop.
//!
//! | to | use |
//! |---|---|
//! | configure an agent and start runs | [`Agent`] |
//! | receive a run's events | [`Run`] |
//! | steer, approve, interrupt | [`RunHandle`] |
//! | limit tokens, cost, time and calls | [`Budget`], [`Pool`], [`Limits`] |
//! | run your own code at fixed points of the loop | [`hook`] |
//! | require proof that the work was done | [`evidence`] |
//! | detect runs that go wrong | [`detect`] |
//! | observe every run, for example for telemetry | [`RunObserver`] |
//! | replace the loop's body | [`Agent::run_with_body`], [`loop_body`], [`RunContext`], [`State`] |
//!
//! # How the loop is built
//!
//! The agent uses only the public API of this crate. [`decide()`] and the other functions in the
//! module `decide` are pure functions that map a turn to the next action. [`loop_body()`] applies
//! the next action to a [`State`] by calling the methods of a [`RunContext`]. Each of the agent's
//! policies, such as its budget or its limits, is defined in its own module. To write your own
//! loop, copy `loop_body` and pass the copy to [`Agent::run_with_body`].
//!
//! Read this module's files in the following order:
//!
//! - `body` contains one iteration of the loop.
//! - `decide` chooses the next action.
//! - `state` defines the state of the loop.
//! - `run/run_context` defines the methods that the body calls. The folder `phase` implements them,
//!   in the order of an iteration.
//! - `run/run` implements the stream that drives the loop, and `run/control` is the state that it
//!   shares with its handles.
//! - `sources` lists the tools of an agent's tool sources.
//! - `agent` starts runs.
//!
//! # Limits
//!
//! These limits have no setter. [The guide](crate::guide::defaults) lists those that have one.
//!
//! | limit | value | when it is reached |
//! |---|---|---|
//! | characters of a position or a mismatch in the message about an answer that cannot be parsed | 300 | the rest is replaced with `…` |
//! | turns in a repeated cycle | 4 | longer cycles are not detected |
//! | inputs that wait for a run, and their total size | 1,000, 16 MiB; a single input may be larger | [`RunHandle::steer`] and [`RunHandle::follow_up`] return the input; a hub returns an `overloaded` error |
//! | bytes of the reason for an interrupt | 2,000 | the middle is cut out |
//! | items per turn | 16,384 | a `too_large` error |
//! | earlier calls to a tool that [`NonIdempotentRetry`] compares with a call | 32 | older calls are not compared |
//! | side effects listed in a message about missing evidence | 5 | the remaining side effects are only counted |
//! | length of an error's summary in a trace | 240 characters | the rest is replaced with `…` |
//! | nesting depth of a value in a trace | 100 levels | the value is stored as text |
//!
//! [`NonIdempotentRetry`]: crate::agent::detect::NonIdempotentRetry

mod agent;
mod body;
mod budget;
mod decide;
pub mod detect;
pub mod evidence;
mod grant_predicates;
mod held_repeat;
mod helper_reports;
pub mod hook;
mod limits;
mod phase;
mod prompts;
mod repeat_counter;
mod resume;
mod resume_verdicts;
mod run;
mod same_call;
mod send_message;
mod settings;
mod sources;
mod state;
mod subagent;
mod timed_call;
mod validators;

pub use agent::Agent;
pub use body::loop_body;
pub use budget::{Budget, Pool, PoolSlot, Target, TokenReservation};
pub use decide::{Decision, Facts, NextAction, StopReview, after_tools, at_stop, decide, on_error};
pub use limits::Limits;
pub use phase::forward_turns::{TurnForwarder, forward_turns};
pub use resume_verdicts::ResumeVerdicts;
pub(crate) use run::control::{RefusedInput, RevocationError, queued_bytes};
pub(crate) use run::handle::forward_handle_methods;
pub(crate) use run::handle::shorten_interrupt_reason;
pub use run::handle::{InputReceipt, RunHandle};
pub use run::input::Input;
pub(crate) use run::observation::ObservedEvents;
pub use run::run::Run;
pub use run::run_context::RunContext;
pub use run::run_observer::{EventObserver, ObservedRun, RunObserver};
pub use run::run_start::RunStart;
pub use state::{Approvals, EvidenceState, ModelSelection, RunCounts, State, StateFields, Streaks};
