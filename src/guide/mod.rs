//! The book: what does not fit beside one item.

#[doc = include_str!("agent.md")]
pub mod agent {}

#[doc = include_str!("wires.md")]
pub mod wires {}

#[doc = include_str!("replay.md")]
pub mod replay {}
