//! Sample entries, and a folder for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(unix)]
use std::time::SystemTime;
use std::{env, fs, process};

use futures::future::BoxFuture;
use turnstream::Error;
#[cfg(unix)]
use turnstream::env::Clock;
pub(crate) use turnstream::session::suite::{
    entries_of_every_kind, numbered_entries, text_entry as said,
};
use turnstream::session::{Entry, JsonLinesStore, Store};

use crate::support::stores::forward_to_inner;

/// A folder for one test, removed on drop.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    pub(crate) fn new() -> Self {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("turnstream-stores-{}-{number}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens a store in a folder.
pub(crate) type OpenStore = fn(&Path) -> Result<Box<dyn Store>, Error>;

pub(crate) fn open_json_lines(folder: &Path) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(JsonLinesStore::open(folder)?))
}

#[cfg(feature = "sqlite")]
pub(crate) fn open_sqlite(folder: &Path) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(turnstream::session::SqliteStore::open(folder.join("db"))?))
}

/// A clock that removes a file when the time is read, as another program may in the middle of an
/// append.
#[cfg(unix)]
pub(crate) struct FileRemovingClock(pub(crate) PathBuf);

#[cfg(unix)]
impl Clock for FileRemovingClock {
    fn now(&self) -> SystemTime {
        let _ = fs::remove_file(&self.0);
        SystemTime::UNIX_EPOCH
    }
}

/// The permissions of a file.
#[cfg(unix)]
pub(crate) fn file_mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;

    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[cfg(unix)]
pub(crate) fn set_file_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;

    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A store whose folder is removed with it.
#[derive(Clone)]
pub(crate) struct TempFolderStore<S> {
    inner: S,
    _folder: Arc<TempFolder>,
}

impl<S> TempFolderStore<S> {
    pub(crate) fn new(open: impl FnOnce(&TempFolder) -> Result<S, Error>) -> Self {
        let folder = TempFolder::new();
        Self { inner: open(&folder).unwrap(), _folder: Arc::new(folder) }
    }
}

impl<S: Store> Store for TempFolderStore<S> {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.append(id, expected, entries)
    }

    forward_to_inner!();
}
