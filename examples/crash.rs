//! Kills a process in the middle of a session, again and again, and checks whether anything was
//! lost or done twice.
//!
//! ```text
//! cargo run --example crash -- --kills 200 --seed 1
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
struct JsonLines;

impl StoreKind for JsonLines {
    const VALUES: &'static str = "jsonl (the default)";

    fn parse(value: Option<&str>) -> Result<Self, String> {
        match value {
            None | Some("jsonl") => Ok(Self),
            Some(other) => Err(format!("there is no store `{other}`; there is jsonl")),
        }
    }

    fn value(&self) -> &str {
        self.name()
    }

    fn name(&self) -> &'static str {
        "jsonl"
    }

    async fn open(&self, folder: &Path) -> Result<Arc<dyn Store>, Error> {
        Ok(Arc::new(JsonLinesStore::open(folder)?))
    }

    fn session_file(&self, folder: &Path) -> Option<PathBuf> {
        Some(folder.join(format!("{SESSION_ID}.jsonl")))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    std::process::exit(crash::run::<JsonLines>(std::env::args().skip(1)).await);
}
