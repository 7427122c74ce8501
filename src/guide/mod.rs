//! Guides, one topic a page.

#[doc = include_str!("links.md")]
#[cfg_attr(all(feature = "http", feature = "schemars"), doc = include_str!("first_agent.md"))]
pub mod first_agent {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("how_a_run_ends.md"))]
pub mod how_a_run_ends {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("control.md"))]
pub mod control {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("budgets.md"))]
pub mod budgets {}

#[doc = include_str!("links.md")]
#[doc = include_str!("compaction.md")]
pub mod compaction {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("evidence.md"))]
pub mod evidence {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("hooks.md"))]
pub mod hooks {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("sub_agents.md"))]
pub mod sub_agents {}

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
