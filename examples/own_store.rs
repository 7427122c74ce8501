//! A store of your own: a folder with a file for each session, and in it a line for each entry.
//!
//! ```text
//! cargo run --example own_store
//! ```
//!
//! The operations are synchronous, and a `StoreThread` runs them. Leases exclude other runs only
//! within this process, and an append writes the whole session: a `JsonLinesStore` does neither.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, io, iter};

use serde::{Deserialize, Serialize};
use turnstream::provider::Scripted;
use turnstream::session::backend::{
    self, BlockingStore, LocalLeases, StoreThread, impl_blocking_store,
};
use turnstream::session::{Entry, ForkOrigin, Lease, Session, SessionInfo};
use turnstream::{Agent, Error, ErrorKind};

type Result<T> = std::result::Result<T, Error>;

pub(crate) struct FolderStore {
    sessions: StoreThread<Folder>,
}

impl_blocking_store!(FolderStore, sessions);

impl FolderStore {
    /// Opens the store in a folder, which is created if necessary.
    pub(crate) fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        fs::create_dir_all(&path)
            .map_err(|error| store_error("cannot create the folder", error))?;
        let folder = Folder { path, leases: LocalLeases::default(), last_write: UNIX_EPOCH };
        Ok(Self { sessions: StoreThread::new("folder-store", folder) })
    }
}

struct Folder {
    path: PathBuf,
    leases: LocalLeases,
    last_write: SystemTime,
}

/// The first line of a session's file; the entries follow.
#[derive(Serialize, Deserialize)]
struct Header {
    id: String,
    origin: Option<ForkOrigin>,
    updated_at: SystemTime,
}

impl Folder {
    fn file(&self, id: &str) -> PathBuf {
        self.path.join(format!("{}.json", backend::file_name_from_id(id)))
    }

    fn version(&self, id: &str) -> Result<Option<u64>> {
        Ok(read_session(&self.file(id))?.map(|(_, entries)| entries.len() as u64))
    }

    /// Replaces the session's file. After a crash, the file is the old or the new one.
    fn write(&mut self, id: &str, origin: Option<ForkOrigin>, entries: &[Entry]) -> Result<()> {
        // Each write is later than the one before it, whatever the clock says.
        self.last_write = SystemTime::now().max(self.last_write + Duration::from_micros(1));
        let header = Header { id: id.to_owned(), origin, updated_at: self.last_write };
        let header = serde_json::to_string(&header)
            .map_err(|error| store_error("the session cannot be written as JSON", error.into()));
        let lines = iter::once(header).chain(entries.iter().map(backend::entry_to_json_line));
        let lines = lines.collect::<Result<Vec<_>>>()?;
        let new = self.path.join("new");
        let write = || {
            let mut file = fs::File::create(&new)?;
            file.write_all(lines.join("\n").as_bytes())?;
            file.sync_all()?;
            // Windows does not replace an open file.
            drop(file);
            fs::rename(&new, self.file(id))
        };
        write().map_err(|error| store_error("the session cannot be written", error))
    }
}

impl BlockingStore for Folder {
    fn append(
        &mut self,
        lease: Option<&Lease>,
        id: &str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> Result<u64> {
        backend::ensure_id_not_empty(id)?;
        lease.map_or(Ok(()), |lease| self.leases.check(id, lease))?;
        let found = read_session(&self.file(id))?;
        let (origin, mut stored) = found.map_or((None, vec![]), |(it, stored)| (it.origin, stored));
        backend::ensure_expected_version(id, expected, stored.len() as u64)?;
        if !entries.is_empty() {
            stored.extend(entries);
            self.write(id, origin, &stored)?;
        }
        Ok(stored.len() as u64)
    }

    fn lease(&mut self, id: &str) -> Result<Lease> {
        backend::ensure_id_not_empty(id)?;
        self.leases.take(id)
    }

    fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        Ok(read_session(&self.file(id))?
            .map(|(_, entries)| entries.into_iter().skip(from).collect()))
    }

    fn list(&mut self) -> Result<Vec<SessionInfo>> {
        let cannot = |error| store_error("cannot read the folder", error);
        let mut found = Vec::new();
        for file in fs::read_dir(&self.path).map_err(cannot)? {
            let path = file.map_err(cannot)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            found.push(match read_session(&path) {
                Ok(Some((header, entries))) => SessionInfo {
                    id: header.id,
                    version: entries.len() as u64,
                    origin: header.origin,
                    updated_at: header.updated_at,
                    read_error: None,
                },
                Ok(None) => continue, // It was deleted in the meantime.
                Err(error) => SessionInfo {
                    id: path.display().to_string(),
                    version: 0,
                    origin: None,
                    updated_at: UNIX_EPOCH,
                    read_error: Some(error.to_string()),
                },
            });
        }
        found.sort_by(|a, b| b.updated_at.cmp(&a.updated_at).then_with(|| a.id.cmp(&b.id)));
        Ok(found)
    }

    fn fork(&mut self, id: &str, at: u64, new: &str) -> Result<()> {
        backend::ensure_id_not_empty(new)?;
        backend::ensure_fork_point_exists(id, at, self.version(id)?)?;
        backend::ensure_session_absent(new, self.version(new)?)?;
        let count = usize::try_from(at).unwrap_or(usize::MAX);
        let entries = self.load(id, 0)?.unwrap_or_default().into_iter().take(count);
        let origin = ForkOrigin { id: id.to_owned(), at };
        self.write(new, Some(origin), &entries.collect::<Vec<_>>())
    }

    fn delete(&mut self, id: &str) -> Result<bool> {
        let sessions = self.list()?;
        let is_fork = |it: &&SessionInfo| it.origin.as_ref().is_some_and(|origin| origin.id == id);
        backend::ensure_has_no_forks(id, sessions.iter().find(is_fork).map(|fork| &fork.id))?;
        match fs::remove_file(self.file(id)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(store_error("cannot delete the session", error)),
        }
    }

    fn prune(&mut self, before: SystemTime) -> Result<Vec<String>> {
        let sessions = self.list()?;
        let ids = backend::prunable_ids(&sessions, before);
        ids.into_iter().map(|id| self.delete(id).map(|_| id.to_owned())).collect()
    }
}

fn read_session(path: &Path) -> Result<Option<(Header, Vec<Entry>)>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(store_error("cannot read the session", error)),
    };
    let mut lines = text.lines();
    let header = serde_json::from_str(lines.next().unwrap_or_default());
    let entries = lines.map(serde_json::from_str).collect::<serde_json::Result<_>>();
    let session = header.and_then(|header| Ok(Some((header, entries?))));
    session.map_err(|error| store_error("the file is not a session", error.into()))
}

fn store_error(what: &str, source: io::Error) -> Error {
    Error::new(ErrorKind::Store, format!("{what}: {source}")).with_source(source)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let folder = env::temp_dir().join(format!("own-store-{}", std::process::id()));
    let agent = Agent::new(Scripted::new(["A store is a list that only grows."]));
    let session = Session::open(FolderStore::open(&folder)?, "chat").await?;
    session.run(&agent, "What is a store?").await?.outcome().await?;
    // Another process would find the same conversation.
    let session = Session::open(FolderStore::open(&folder)?, "chat").await?;
    for item in &session.history() {
        println!("{}", serde_json::to_string(item).unwrap_or_default());
    }
    fs::remove_dir_all(&folder).map_err(|error| store_error("cannot clean up", error))
}
