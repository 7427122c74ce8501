//! Stores of sessions: the contract of each, and the failures that the durable ones survive.

mod damage;
#[cfg(target_os = "linux")]
mod failing_files;
mod json_lines;
mod leases;
#[expect(dead_code, reason = "only its store is wanted")]
#[path = "../../../examples/own_store.rs"]
mod own_store;
mod processes;
mod removal;
mod runs;
mod salvage;
pub(crate) mod sample_entries;
#[cfg(feature = "sqlite")]
mod sqlite;

use sample_entries::TempFolderStore;
#[cfg(feature = "sqlite")]
use turnstream::session::SqliteStore;
use turnstream::session::{JsonLinesStore, MemoryStore};

turnstream::session_suite!(in_memory, super::MemoryStore::new);
turnstream::session_suite!(in_json_lines, || super::TempFolderStore::new(|folder| {
    super::JsonLinesStore::open(folder.path())
}));
turnstream::session_suite!(in_the_example, || super::TempFolderStore::new(|folder| {
    super::own_store::FolderStore::open(folder.path())
}));
#[cfg(feature = "sqlite")]
turnstream::session_suite!(in_sqlite, || super::TempFolderStore::new(|folder| {
    super::SqliteStore::open(folder.join("db"))
}));
