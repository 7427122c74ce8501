//! How a history gets shorter: what a compactor says to replace, and a plain one without a model.

mod compact;
mod shorten;

pub use compact::{CompactWith, Compaction, Compactor, compact_with, reactive, was_compacted};
pub use shorten::Shorten;
