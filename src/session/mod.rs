//! Sessions that outlive the process: what was said is kept in a store as it is said.
//!
//! A session is an ordered list of [`Entry`]s in a [`Store`]. It only ever grows: what is folded away
//! stays, and what stands in for it comes behind. Its version is how many entries it has, and an
//! append names the version that it follows, so that two writers cannot interleave.
//!
//! A [`Session`] is one of them as a program holds it: [`Session::run`] goes on with it,
//! [`Session::resume`] with what was broken off, and [`Session::fork_at`] makes another of its beginning.
//! [`persist_to`](PersistExt::persist_to) writes the events of a loop of your own. The
//! [guide](crate::guide::sessions) tells what is durable when.

mod blocking_store;
mod checkpoint;
mod checks;
mod entry;
mod entry_json;
mod entry_recorder;
mod file_name;
mod json_lines;
mod lease;
mod local_leases;
mod lock_file;
mod memory;
mod persist_to;
#[cfg(feature = "postgres")]
mod postgres;
mod private_files;
mod prune;
mod restore;
mod resume;
mod salvage;
mod session;
mod session_run;
mod settle_entries;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
#[cfg(feature = "testing")]
pub mod suite;
mod worker;

pub use entry::Entry;
pub use json_lines::JsonLinesStore;
pub use lease::{AlreadyLeased, Lease, LeaseLost};
pub use memory::MemoryStore;
pub use persist_to::{PersistExt, PersistTo};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresError, PostgresErrorKind, PostgresOptions, PostgresStore};
pub use restore::{SessionState, restore_history};
pub use salvage::{Damage, SalvageReport};
pub use session::Session;
pub use session_run::SessionRun;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use store::{Conflict, ForkOrigin, SessionInfo, Store};
