//! Sessions that outlive the process: what was said is kept in a store as it is said.
//!
//! A session is an ordered list of [`Entry`]s in a [`Store`]. It only ever grows: what is folded away
//! stays, and what stands in for it comes behind. Its version is how many entries it has, and an
//! append names the version that it follows, so that two writers cannot interleave.

mod entry;
mod json_lines;
mod line;
mod memory;
mod refusal;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod worker;

pub use entry::Entry;
pub use json_lines::JsonLinesStore;
pub use memory::MemoryStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use store::{Conflict, Fork, Listed, Store};
