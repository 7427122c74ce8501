//! The ledger: immutable, shared, cheap to clone, fork and append to.

mod call_ids;
mod encoded;
mod history;
mod items;
mod law;
mod nested;
mod node;
mod shared;
mod stored;

pub(crate) use encoded::EncodedChunk;
pub use history::History;
pub use items::Items;

#[cfg(test)]
mod tests;
