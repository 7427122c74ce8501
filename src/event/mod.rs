//! All that a consumer of a run ever sees, as data.
//!
//! Stores, user interfaces and traces are folds over [`Event`]. Its JSON is one flat object a
//! line; readers skip a `type` they do not know.

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
