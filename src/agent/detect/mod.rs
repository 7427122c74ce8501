//! Detectors, which report six ways in which a run can go wrong.
//!
//! [`Detectors`] is the hook that contains all of the detectors. Each detector is a struct that
//! holds its thresholds. A detector's findings depend only on its thresholds and on the run so far.

mod ambiguous_failure;
mod context_bloat;
mod detection_input;
mod detectors;
mod missing_termination;
mod non_idempotent_retry;
mod planning_without_execution;
mod signals;
mod silent_side_effect;

pub use ambiguous_failure::AmbiguousFailure;
pub use context_bloat::ContextBloat;
pub use detectors::Detectors;
pub use missing_termination::MissingTermination;
pub use non_idempotent_retry::NonIdempotentRetry;
pub use planning_without_execution::PlanningWithoutExecution;
pub use signals::{FailureMode, Signal, SignalLog};
pub use silent_side_effect::SilentSideEffect;
