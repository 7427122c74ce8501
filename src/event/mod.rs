//! Everything that a consumer of a run receives, as data.
//!
//! Stores, user interfaces and traces are folds over [`Event`]. As JSON, each event is one flat
//! object on one line. Readers skip objects with an unknown `type`.

mod budget_exceeded;
mod end_reason;
mod event;
mod json;
mod outcome;
mod transition;

pub use budget_exceeded::{BudgetExceeded, BudgetKind};
pub use end_reason::{EndReason, InterruptedPhase};
pub use event::{Event, ToolEvent};
pub use outcome::{Outcome, UndeliveredInput};
pub use transition::{AppendReason, RewriteReason, Transition};

#[cfg(test)]
mod tests;
