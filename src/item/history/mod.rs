//! Histories, which consist of immutable, shared items and are cheap to clone, fork and append to.

mod call_ids;
mod common_prefix;
mod encode_cache;
mod history;
mod items;
mod nested_histories;
mod node;
mod pending_calls;
mod serialization;
mod settle_state;

pub(crate) use encode_cache::EncodedChunk;
pub use history::History;
pub use items::Items;

#[cfg(test)]
mod tests;
