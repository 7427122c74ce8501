//! Events: everything that a consumer receives from a run, as data.
//!
//! Stores, user interfaces and traces are built by folding over [`Event`]s. In JSON, each event is
//! a single flat object on one line. Readers skip objects with an unknown `type`.
//!
//! The last event of a run is [`Event::Finished`], whose [`Outcome`] states how the run ended. The
//! [guide](crate::guide::events) lists all events with their fields.

mod budget_exceeded;
mod end_reason;
mod event;
mod grant_change;
mod json;
mod outcome;
mod stop_action;
mod transition;

pub use budget_exceeded::{BudgetExceeded, BudgetKind};
pub use end_reason::{EndReason, InterruptedPhase};
pub use event::{Event, ToolEvent};
pub use grant_change::GrantChange;
pub use outcome::{Outcome, UndeliveredInput, UnfinishedRun};
pub use stop_action::{StopAction, StopActionReason};
pub use transition::{AppendReason, RewriteReason, Transition};

#[cfg(test)]
mod tests;
