//! The claims for all stores.

use std::path::Path;
use std::sync::Arc;

use turnstream::Error;
use turnstream::session::Store;
use turnstream_sqlite::SqliteStore;
use turnstream_test_support::store_suite::{ReopenableStore, TempStore};
use turnstream_test_support::{disk_store_suite, store_suite};

fn open(folder: &Path) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(SqliteStore::open(folder.join("db"))?))
}

turnstream_testing::session_suite!(contract, || super::TempStore::new(super::open));
store_suite!(runs, || super::ReopenableStore::on_disk(super::open));
disk_store_suite!(on_disk, super::open, step = 41);
