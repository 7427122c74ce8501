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
#[cfg_attr(feature = "schemars", doc = include_str!("own_loop.md"))]
pub mod own_loop {}

#[doc = include_str!("links.md")]
#[cfg_attr(all(feature = "schemars", feature = "tool-search"), doc = include_str!("tools.md"))]
pub mod tools {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "http", doc = include_str!("providers.md"))]
pub mod providers {}

#[doc = include_str!("links.md")]
#[doc = include_str!("defaults.md")]
pub mod defaults {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "task", doc = include_str!("cancellation.md"))]
pub mod cancellation {}

#[doc = include_str!("links.md")]
#[cfg_attr(all(feature = "http", feature = "testing"), doc = include_str!("extending.md"))]
pub mod extending {}

#[doc = include_str!("links.md")]
#[cfg_attr(all(feature = "http", feature = "testing"), doc = include_str!("testing.md"))]
pub mod testing {}

#[doc = include_str!("links.md")]
#[cfg_attr(all(feature = "postgres", feature = "redis"), doc = include_str!("many_machines.md"))]
pub mod many_machines {}

#[doc = include_str!("links.md")]
#[doc = include_str!("performance.md")]
pub mod performance {}

#[doc = include_str!("links.md")]
#[doc = include_str!("sessions.md")]
pub mod sessions {}

#[doc = include_str!("links.md")]
#[doc = include_str!("trace.md")]
pub mod trace {}

#[doc = include_str!("links.md")]
#[doc = include_str!("replay.md")]
pub mod replay {}

#[doc = include_str!("links.md")]
#[cfg_attr(all(feature = "hub", feature = "ui"), doc = include_str!("front_ends.md"))]
pub mod front_ends {}

#[doc = include_str!("links.md")]
#[cfg_attr(all(feature = "mcp", feature = "testing"), doc = include_str!("mcp.md"))]
pub mod mcp {}

#[doc = include_str!("links.md")]
#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("links.md")]
#[cfg_attr(feature = "schemars", doc = include_str!("coming_from.md"))]
pub mod coming_from {}

#[doc = include_str!("links.md")]
#[doc = include_str!("not_included.md")]
pub mod not_included {}
