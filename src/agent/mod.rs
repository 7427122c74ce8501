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
//! - `run_context` defines the methods that the body calls. The files `external_facts`,
//!   `refresh_tools`, `deliver_input`, `refused_reasoning`, `compaction`, `send_request`,
//!   `run_tools` and `stop_review` implement the methods of `run_context`.
//! - `run` implements the stream that drives the loop.
//! - `agent` starts runs.

mod agent;
mod body;
mod budget;
mod checked_input;
mod compaction;
mod compaction_state;
mod control;
mod deadline;
mod decide;
mod deliver_input;
pub mod detect;
pub mod evidence;
mod external_facts;
mod forward_turns;
mod handle;
pub mod hook;
mod input;
mod limits;
mod listed_tools;
mod observers;
mod pool_claim;
mod prepared_request;
mod prompts;
mod refresh_tools;
mod refused_reasoning;
mod repeat_counter;
mod resume;
mod resume_verdicts;
mod run;
mod run_context;
mod run_policy;
mod run_shared;
mod run_stage;
mod run_start;
mod run_tools;
mod send_request;
mod settings;
mod source_tools;
mod state;
mod stop_review;
mod subagent;
mod timed_call;
mod tombstone_queue;
mod tool_notice;
mod tool_sources;
mod validators;
mod wait_for_pool;

pub use agent::Agent;
pub use body::loop_body;
pub use budget::{
    AcquireSlot, Budget, BudgetUsage, Pool, PoolSlot, ReserveTokens, Target, TargetDecision,
    TargetProgress, TokenReservation,
};
pub use compaction_state::CompactionState;
pub(crate) use control::{RefusedInput, queued_bytes};
pub use decide::{Decision, Facts, NextAction, StopReview, after_tools, at_stop, decide, on_error};
pub use forward_turns::{TurnForwarder, forward_turns};
pub(crate) use handle::forward_handle_methods;
pub(crate) use handle::shorten_interrupt_reason;
pub use handle::{InputReceipt, RunHandle};
pub use input::Input;
pub use limits::Limits;
pub use repeat_counter::RepeatCounter;
pub use resume_verdicts::ResumeVerdicts;
pub use run::Run;
pub use run_context::RunContext;
pub use run_start::RunStart;
pub use state::{
    Approvals, EndState, EvidenceState, ModelSelection, RunCounts, State, StateFields, Streaks,
};
