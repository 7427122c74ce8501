//! The ready-made agent: a loop over a provider, a toolkit and a history.
//!
//! It stands on the public parts below it and nothing else. [`decide()`] and its sisters are pure
//! tables of what a turn leads to, [`loop_body()`] performs them on a [`State`] by the methods of its
//! [`RunContext`]; each policy is a value with a file of its own. A copy of the body is a loop of your
//! own: hand it to [`Agent::run_with_body`].
//!
//! Read the files in this order: `body` is the loop; `decide` says what comes next; `state` is what it goes
//! over; `run_context` lists what the body asks for, and `facts`, `deliver`, `compaction`, `asking`,
//! `answering` and `stopping` do it; `run` is the stream around the loop, and `agent` is where a run begins.

mod admission;
mod admit;
mod agent;
mod answering;
mod asking;
mod body;
mod budget;
mod checks;
mod compaction;
mod control;
mod deadline;
mod decide;
mod deliver;
pub mod detect;
pub mod evidence;
mod facts;
mod gate;
mod handle;
pub mod hook;
mod input;
mod limits;
mod observers;
mod prepared;
mod repeats;
mod resume;
mod room;
mod run;
mod run_context;
mod run_start;
mod settings;
mod shared;
mod state;
mod stopping;
mod subagent;
mod tombstone_queue;
mod verdicts;
mod within;
mod words;

pub use agent::Agent;
pub use body::loop_body;
pub use budget::{
    AcquireSlot, Budget, BudgetUsage, Pool, PoolSlot, ReserveTokens, Target, TargetDecision,
    TargetProgress, TokenReservation,
};
pub use decide::{Decision, Facts, NextAction, StopReview, after_tools, at_stop, decide, on_error};
pub use handle::{Receipt, RunHandle};
pub use input::Input;
pub use limits::Limits;
pub use repeats::RepeatCounter;
pub use room::CompactionState;
pub use run::Run;
pub use run_context::RunContext;
pub use run_start::RunStart;
pub use state::{
    Approvals, EndState, EvidenceState, ModelSelection, RunCounts, State, StateFields, Streaks,
};
pub use verdicts::ResumeVerdicts;
