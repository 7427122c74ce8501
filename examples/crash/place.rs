//! The locations of everything that outlives a process.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use turnstream::Error;
use turnstream::session::{JsonLinesStore, Store};

/// The session's id.
pub(crate) const SESSION_ID: &str = "crash";

#[derive(Clone, PartialEq)]
pub(crate) enum StoreKind {
    JsonLines,
    #[cfg(feature = "sqlite")]
    Sqlite,
    /// The URL of the database.
    #[cfg(feature = "postgres")]
    Postgres(String),
}

impl StoreKind {
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        match name {
            "jsonl" => Ok(Self::JsonLines),
            #[cfg(feature = "sqlite")]
            "sqlite" => Ok(Self::Sqlite),
            #[cfg(not(feature = "sqlite"))]
            "sqlite" => Err("the store `sqlite` needs the feature `sqlite`".to_owned()),
            #[cfg(feature = "postgres")]
            url if is_postgres(url) => Ok(Self::Postgres(url.to_owned())),
            #[cfg(not(feature = "postgres"))]
            url if is_postgres(url) => {
                Err("the store `postgres` needs the feature `postgres`".to_owned())
            }
            other => Err(format!(
                "there is no store `{other}`; there are jsonl, sqlite and postgres://…"
            )),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::JsonLines => "jsonl",
            #[cfg(feature = "sqlite")]
            Self::Sqlite => "sqlite",
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "postgres",
        }
    }

    /// The argument that [`parse`](Self::parse) turns into this kind.
    pub(crate) fn argument(&self) -> &str {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => url,
            other => other.name(),
        }
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// A folder with the store and the tools' effects.
#[derive(Clone)]
pub(crate) struct StoreLocation {
    pub(crate) kind: StoreKind,
    pub(crate) folder: PathBuf,
}

impl StoreLocation {
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_async, reason = "a server is far"))]
    pub(crate) async fn open_store(&self) -> Result<Arc<dyn Store>, Error> {
        Ok(match &self.kind {
            StoreKind::JsonLines => Arc::new(JsonLinesStore::open(&self.folder)?),
            #[cfg(feature = "sqlite")]
            StoreKind::Sqlite => {
                Arc::new(turnstream::session::SqliteStore::open(self.folder.join("crash.db"))?)
            }
            #[cfg(feature = "postgres")]
            StoreKind::Postgres(url) => {
                // A schema of its own, which is not dropped.
                let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
                let options = turnstream::session::PostgresOptions::new(url.as_str());
                Arc::new(options.with_schema(name.replace('-', "_")).connect().await?)
            }
        })
    }

    /// The session's file, if the store has one file per session.
    pub(crate) fn session_file(&self) -> Option<PathBuf> {
        (self.kind == StoreKind::JsonLines).then(|| self.folder.join(format!("{SESSION_ID}.jsonl")))
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
