//! Sessions that outlive the process: what was said is kept in a store as it is said.
//!
//! A session is an ordered list of [`Entry`]s in a [`Store`]. It only ever grows: what is folded away
//! stays, and what stands in for it comes behind. Its version is how many entries it has, and an
//! append names the version that it follows, so that two writers cannot interleave.

mod entry;
mod memory;
mod store;

pub use entry::Entry;
pub use memory::MemoryStore;
pub use store::{Conflict, Fork, Listed, Store};
