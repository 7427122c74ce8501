//! Where everything is that outlives a process.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use turnstream::Error;
use turnstream::session::{JsonLinesStore, Store};

/// The session's id.
pub(crate) const SESSION_ID: &str = "crash";

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum StoreKind {
    JsonLines,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

impl StoreKind {
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        match name {
            "jsonl" => Ok(Self::JsonLines),
            #[cfg(feature = "sqlite")]
            "sqlite" => Ok(Self::Sqlite),
            #[cfg(not(feature = "sqlite"))]
            "sqlite" => Err("the store `sqlite` needs the feature `sqlite`".to_owned()),
            other => Err(format!("there is no store `{other}`; there are jsonl and sqlite")),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::JsonLines => "jsonl",
            #[cfg(feature = "sqlite")]
            Self::Sqlite => "sqlite",
        }
    }
}

/// A folder with the store and what the tools did.
#[derive(Clone)]
pub(crate) struct StoreLocation {
    pub(crate) kind: StoreKind,
    pub(crate) folder: PathBuf,
}

impl StoreLocation {
    pub(crate) fn open_store(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(match self.kind {
            StoreKind::JsonLines => Arc::new(JsonLinesStore::open(&self.folder)?),
            #[cfg(feature = "sqlite")]
            StoreKind::Sqlite => {
                Arc::new(turnstream::session::SqliteStore::open(self.folder.join("crash.db"))?)
            }
        })
    }

    /// The file of the session, where the store has one for each.
    pub(crate) fn session_file(&self) -> Option<PathBuf> {
        (self.kind == StoreKind::JsonLines).then(|| self.folder.join(format!("{SESSION_ID}.jsonl")))
    }

    /// Where a tool writes the key of each call.
    pub(crate) fn effect_file(&self, tool: &str) -> PathBuf {
        self.folder.join(format!("{tool}.txt"))
    }

    /// What a tool does to the world: it writes a line that stays.
    pub(crate) fn record_effect(&self, tool: &str, key: &str) -> io::Result<()> {
        let path = self.effect_file(tool);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(format!("{key}\n").as_bytes())?;
        file.sync_data()
    }
}
