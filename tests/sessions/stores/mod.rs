//! Stores of sessions: the contract of each, and the failures that the durable ones survive.

mod damage;
mod json_lines;
mod leases;
#[expect(dead_code, reason = "only its store is wanted")]
#[path = "../../../examples/own_store.rs"]
mod own_store;
mod removal;
mod salvage;

use std::path::Path;
use std::sync::Arc;

use turnstream::Error;
use turnstream::session::{JsonLinesStore, MemoryStore, Store};
use turnstream_test_support::store_suite::{ReopenableStore, TempStore};
use turnstream_test_support::{disk_store_suite, store_suite};

fn open_json_lines(folder: &Path) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(JsonLinesStore::open(folder)?))
}

fn open_example(folder: &Path) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(own_store::FolderStore::open(folder)?))
}

turnstream_testing::session_suite!(in_memory, super::MemoryStore::new);
turnstream_testing::session_suite!(in_json_lines, || super::TempStore::new(super::open_json_lines));
turnstream_testing::session_suite!(in_the_example, || super::TempStore::new(super::open_example));

store_suite!(runs_in_memory, super::ReopenableStore::in_memory);
store_suite!(runs_in_json_lines, || super::ReopenableStore::on_disk(super::open_json_lines));
disk_store_suite!(json_lines_on_disk, super::open_json_lines, step = 11);
