//! Kills a process in the middle of a session, again and again, and checks whether anything was
//! lost or done twice.
//!
//! ```text
//! cargo run --example crash
//! cargo run --example crash --features sqlite -- --store sqlite --kills 200 --seed 1
//! ```
//!
//! The campaign itself is in `crates/test-support/src/crash`, for any store: the program starts
//! itself as a child process, which prints each item that its runs report, and kills the child at a
//! random moment. The last line has the number of kills, lost items and duplicates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnstream::Error;
use turnstream::session::{JsonLinesStore, Store};
use turnstream_test_support::crash::{self, SESSION_ID, StoreKind};

#[derive(Clone)]
enum FileStore {
    JsonLines,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

impl StoreKind for FileStore {
    const VALUES: &'static str = "jsonl (the default), or sqlite, which needs this feature";

    fn parse(value: Option<&str>) -> Result<Self, String> {
        match value {
            None | Some("jsonl") => Ok(Self::JsonLines),
            #[cfg(feature = "sqlite")]
            Some("sqlite") => Ok(Self::Sqlite),
            #[cfg(not(feature = "sqlite"))]
            Some("sqlite") => Err("the store `sqlite` needs the feature `sqlite`".to_owned()),
            Some(other) => Err(format!("there is no store `{other}`; there are jsonl and sqlite")),
        }
    }

    fn value(&self) -> &str {
        self.name()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::JsonLines => "jsonl",
            #[cfg(feature = "sqlite")]
            Self::Sqlite => "sqlite",
        }
    }

    async fn open(&self, folder: &Path) -> Result<Arc<dyn Store>, Error> {
        Ok(match self {
            Self::JsonLines => Arc::new(JsonLinesStore::open(folder)?),
            #[cfg(feature = "sqlite")]
            Self::Sqlite => {
                Arc::new(turnstream::session::SqliteStore::open(folder.join("crash.db"))?)
            }
        })
    }

    fn session_file(&self, folder: &Path) -> Option<PathBuf> {
        match self {
            Self::JsonLines => Some(folder.join(format!("{SESSION_ID}.jsonl"))),
            #[cfg(feature = "sqlite")]
            Self::Sqlite => None,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    std::process::exit(crash::run::<FileStore>(std::env::args().skip(1)).await);
}
