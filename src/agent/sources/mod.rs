//! The tools of an agent's sources.

pub(in crate::agent) mod catalog_notice;
pub(in crate::agent) mod tool_listing;
pub(in crate::agent) mod tool_notice;
pub(in crate::agent) mod tool_sources;
