//! Guides, one topic a page.

#[doc = include_str!("links.md")]
#[doc = include_str!("agent.md")]
pub mod agent {}

#[doc = include_str!("links.md")]
#[doc = include_str!("limits.md")]
pub mod limits {}

#[doc = include_str!("links.md")]
#[doc = include_str!("many_machines.md")]
pub mod many_machines {}

#[doc = include_str!("links.md")]
#[doc = include_str!("performance.md")]
pub mod performance {}

#[doc = include_str!("links.md")]
#[doc = include_str!("sessions.md")]
pub mod sessions {}

#[doc = include_str!("links.md")]
#[doc = include_str!("tools.md")]
pub mod tools {}

#[doc = include_str!("links.md")]
#[doc = include_str!("trace.md")]
pub mod trace {}

#[doc = include_str!("links.md")]
#[doc = include_str!("wires.md")]
pub mod wires {}

#[doc = include_str!("links.md")]
#[doc = include_str!("replay.md")]
pub mod replay {}
