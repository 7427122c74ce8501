//! The only place where a turn is put together.

mod absorb;
mod builder;
mod call_state;
mod calls;
mod end;
mod places;

pub(crate) use builder::MOST_ITEMS;
pub use builder::TurnBuilder;

#[cfg(test)]
mod tests;
