//! Stores for tests: how a store is opened, and the folder in which it is.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use futures::future::BoxFuture;
use turnstream::Error;
use turnstream::env::Clock;
use turnstream::session::{Entry, Lease, MemoryStore, Session, SessionInfo, Store};

use crate::temp_folder::TempFolder;

/// Opens a store in a folder.
pub type OpenStore = fn(&Path) -> Result<Arc<dyn Store>, Error>;

/// A store whose folder is removed with it.
#[derive(Clone)]
pub struct TempStore {
    inner: Arc<dyn Store>,
    _folder: Arc<TempFolder>,
}

impl TempStore {
    /// Opens a store in a new folder.
    pub fn new(open: OpenStore) -> Self {
        let folder = TempFolder::new();
        Self { inner: open(folder.path()).unwrap(), _folder: Arc::new(folder) }
    }
}

impl Store for TempStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.append(id, expected, entries)
    }

    fn append_leased<'a>(
        &'a self,
        lease: &'a Lease,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.append_leased(lease, id, expected, entries)
    }

    fn lease<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Lease, Error>> {
        self.inner.lease(id)
    }

    fn list_page<'a>(
        &'a self,
        after: Option<&'a SessionInfo>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionInfo>, Error>> {
        self.inner.list_page(after, limit)
    }

    crate::forward_to_inner!();
}

/// A store that can be opened again, as another process would.
pub struct ReopenableStore {
    storage: Storage,
    folder: TempFolder,
}

enum Storage {
    Memory(MemoryStore),
    Disk(OpenStore),
}

impl ReopenableStore {
    /// An empty store in memory.
    pub fn in_memory() -> Self {
        Self { storage: Storage::Memory(MemoryStore::new()), folder: TempFolder::new() }
    }

    /// An empty store in a new folder.
    pub fn on_disk(open: OpenStore) -> Self {
        Self { storage: Storage::Disk(open), folder: TempFolder::new() }
    }

    /// Opens the store.
    pub fn open(&self) -> Arc<dyn Store> {
        match &self.storage {
            Storage::Memory(store) => Arc::new(store.clone()),
            Storage::Disk(open) => open(self.folder.path()).unwrap(),
        }
    }

    pub(crate) async fn open_session(&self) -> Session {
        Session::open(self.open(), "s").await.unwrap()
    }

    /// The entries that another process reads.
    pub(crate) async fn load_entries(&self) -> Vec<Entry> {
        self.open().load("s", 0).await.unwrap().unwrap_or_default()
    }
}

/// A clock that removes a file when the time is read, as another program may in the middle of an
/// append.
pub struct FileRemovingClock(pub std::path::PathBuf);

impl Clock for FileRemovingClock {
    fn now(&self) -> SystemTime {
        let _ = std::fs::remove_file(&self.0);
        SystemTime::UNIX_EPOCH
    }
}
