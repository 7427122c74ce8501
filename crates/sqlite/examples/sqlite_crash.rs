//! Kills a process in the middle of a session that is stored in SQLite, again and again, and checks
//! whether anything was lost or done twice.
//!
//! ```text
//! cargo run -p turnstream-sqlite --example sqlite_crash -- --kills 200 --seed 1
//! ```
//!
//! The campaign itself is in `crates/test-support/src/crash`, for any store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnstream::Error;
use turnstream::session::Store;
use turnstream_sqlite::SqliteStore;
use turnstream_test_support::crash::{self, StoreKind};

#[derive(Clone)]
struct Sqlite;

impl StoreKind for Sqlite {
    const VALUES: &'static str = "sqlite (the default)";

    fn parse(value: Option<&str>) -> Result<Self, String> {
        match value {
            None | Some("sqlite") => Ok(Self),
            Some(other) => Err(format!("there is no store `{other}`; there is sqlite")),
        }
    }

    fn value(&self) -> &str {
        self.name()
    }

    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn open(&self, folder: &Path) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(SqliteStore::open(folder.join("crash.db"))?))
    }

    fn session_file(&self, _: &Path) -> Option<PathBuf> {
        None
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    std::process::exit(crash::run::<Sqlite>(std::env::args().skip(1)).await);
}
