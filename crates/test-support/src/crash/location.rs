//! The location of everything that outlives a process.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use turnstream::Error;
use turnstream::session::Store;

use super::store_kind::StoreKind;

/// The session's id.
pub const SESSION_ID: &str = "crash";

/// A folder with the store and the tools' effects.
#[derive(Clone)]
pub(crate) struct StoreLocation<K> {
    pub(crate) kind: K,
    pub(crate) folder: PathBuf,
}

impl<K: StoreKind> StoreLocation<K> {
    pub(crate) async fn open_store(&self) -> Result<Arc<dyn Store>, Error> {
        self.kind.open(&self.folder).await
    }

    /// The session's file, if the store has one file per session.
    pub(crate) fn session_file(&self) -> Option<PathBuf> {
        self.kind.session_file(&self.folder)
    }

    /// The file to which a tool appends the key of each call.
    pub(crate) fn effect_file(&self, tool: &str) -> PathBuf {
        self.folder.join(format!("{tool}.txt"))
    }

    /// A tool's side effect: it appends a line that survives the process.
    pub(crate) fn record_effect(&self, tool: &str, key: &str) -> io::Result<()> {
        let path = self.effect_file(tool);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(format!("{key}\n").as_bytes())?;
        file.sync_data()
    }
}
