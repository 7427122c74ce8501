//! Sessions: conversations that are stored as they take place, so that they outlive the process.
//!
//! A session is an ordered list of [`Entry`]s in a [`Store`]. The list only grows: compacted items
//! stay in the list, and an entry with their replacement is appended. A session's version is the
//! number of its entries. Each append states the version that it expects the session to have, so
//! the appends of two writers cannot interleave.
//!
//! A [`Session`] is a handle to such a list of entries. [`Session::run`] starts a run,
//! [`Session::resume`] continues interrupted work, and [`Session::fork_at`] creates a new session
//! from the first entries of an existing session. [`persist_to`](PersistExt::persist_to) records
//! the events of a hand-written agent loop in a session. The [guide](crate::guide::sessions)
//! describes which data is durable at which point.
//!
//! # Limits
//!
//! These limits have no setter. [The guide](crate::guide::defaults) lists those that have one.
//!
//! | limit | value | when it is reached |
//! |---|---|---|
//! | time to wait for a locked file (JSON lines) | 10 s | a `store` error |
//! | time to wait for open jobs when a store's last clone is dropped | 5 s | the store's thread ends later |
//! | length of a session's file name (JSON lines) | 120 bytes | the name is cut off, and a hash is appended |

pub mod backend;
mod called_tool;
mod checkpoint;
mod entry;
mod entry_recorder;
mod json_lines;
mod lease;
mod memory;
mod persist_to;
mod restore;
mod resume;
mod salvage;
mod session;
mod session_run;
mod settle_entries;
mod store;

pub use entry::Entry;
pub use json_lines::JsonLinesStore;
pub use lease::{AlreadyLeased, Lease, LeaseLost};
pub use memory::MemoryStore;
pub use persist_to::PersistExt;
pub use restore::{SessionState, restore_history};
pub use salvage::{Damage, SalvageReport};
pub use session::Session;
pub use session_run::SessionRun;
pub use store::{Conflict, ForkOrigin, SessionInfo, Store};
