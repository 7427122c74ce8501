//! Builds turns. This module builds all turns that come from a model.

mod absorb_event;
mod builder;
mod call_index;
mod call_state;
mod calls;
mod turn_end;

pub(crate) use builder::MAX_ITEMS;
pub use builder::TurnBuilder;

#[cfg(test)]
mod tests;
