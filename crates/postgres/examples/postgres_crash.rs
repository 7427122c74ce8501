//! Kills a process in the middle of a session that is stored in PostgreSQL, again and again, and
//! checks whether anything was lost or done twice. It can kill the server as well.
//!
//! ```text
//! cargo run -p turnstream-postgres --example postgres_crash -- --store postgres://app@db.example/app
//! ```
//!
//! The campaign itself is in `crates/test-support/src/crash`, for any store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnstream::Error;
use turnstream::session::Store;
use turnstream_postgres::PostgresOptions;
use turnstream_test_support::crash::{self, StoreKind};

/// The URL of a database.
#[derive(Clone)]
struct Database(String);

impl StoreKind for Database {
    const VALUES: &'static str = "the URL of a database, postgres://…";

    fn parse(value: Option<&str>) -> Result<Self, String> {
        match value {
            Some(url) => Ok(Self(url.to_owned())),
            None => Err("`--store` has to name a database".to_owned()),
        }
    }

    fn value(&self) -> &str {
        &self.0
    }

    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn open(&self, folder: &Path) -> Result<Arc<dyn Store>, Error> {
        // A schema of its own, which is not dropped.
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let options = PostgresOptions::new(self.value()).with_schema(name.replace('-', "_"));
        Ok(Arc::new(options.connect().await?))
    }

    fn session_file(&self, _: &Path) -> Option<PathBuf> {
        None
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    std::process::exit(crash::run::<Database>(std::env::args().skip(1)).await);
}
