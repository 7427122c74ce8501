//! All that a consumer of a run ever sees, as data.
//!
//! Stores, user interfaces and traces are folds over [`Event`]. Its JSON is one flat object a
//! line; readers skip a `type` they do not know.

mod event;
mod exceeded;
mod json;
mod outcome;
mod reason;
mod transition;

pub use event::{Event, ToolEvent};
pub use exceeded::{BudgetExceeded, BudgetKind};
pub use outcome::{Outcome, UndeliveredInput};
pub use reason::{EndReason, Phase};
pub use transition::{AppendReason, RewriteReason, Transition};

#[cfg(test)]
mod tests;
