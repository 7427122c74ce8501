//! A store of your own: a folder with one JSON file for each session, each of which is replaced as
//! a whole.
//!
//! ```text
//! cargo run --example own_store
//! ```
//!
//! The operations are synchronous, and a `StoreThread` runs them on a thread of its own. The store
//! passes the tests of `session_suite!`. Its leases exclude other runs only within this process,
//! and an append writes the whole session: a `JsonLinesStore` does neither.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use serde::{Deserialize, Serialize};
use turnstream::provider::Scripted;
use turnstream::session::backend::{
    self, BlockingStore, LocalLeases, StoreThread, impl_blocking_store,
};
use turnstream::session::{Entry, ForkOrigin, Lease, Session, SessionInfo};
use turnstream::{Agent, Error, ErrorKind};

pub struct FolderStore {
    sessions: StoreThread<Folder>,
}

impl_blocking_store!(FolderStore, sessions);

impl FolderStore {
    /// Opens the store in a folder, which is created if necessary.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        fs::create_dir_all(&path)
            .map_err(|error| store_error("cannot create the folder", error))?;
        let folder = Folder { path, leases: LocalLeases::default(), last_write: 0 };
        Ok(Self { sessions: StoreThread::new("folder-store", folder) })
    }
}

struct Folder {
    path: PathBuf,
    leases: LocalLeases,
    /// The time of the last write, in microseconds since 1970.
    last_write: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredSession {
    id: String,
    origin: Option<ForkOrigin>,
    updated_at: u64,
    entries: Vec<Entry>,
}

impl Folder {
    fn file(&self, id: &str) -> PathBuf {
        self.path.join(format!("{}.json", backend::file_name_from_id(id)))
    }

    fn version(&self, id: &str) -> Result<Option<u64>, Error> {
        Ok(read_session(&self.file(id))?.map(|session| session.entries.len() as u64))
    }

    /// Replaces the session's file. After a crash, the file is the old or the new one.
    fn write(&mut self, mut session: StoredSession) -> Result<(), Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        // Each write is later than the one before it, whatever the clock says.
        self.last_write = u64::try_from(now).unwrap_or(u64::MAX).max(self.last_write + 1);
        session.updated_at = self.last_write;
        let json = serde_json::to_vec(&session)
            .map_err(|error| store_error("the session cannot be written as JSON", error.into()))?;
        let new = self.path.join("new");
        fs::write(&new, json)
            .and_then(|()| fs::File::open(&new)?.sync_all())
            .and_then(|()| fs::rename(&new, self.file(&session.id)))
            .map_err(|error| store_error("the session cannot be written", error))
    }
}

impl BlockingStore for Folder {
    fn append(
        &mut self,
        lease: Option<&Lease>,
        id: &str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> Result<u64, Error> {
        backend::ensure_id_not_empty(id)?;
        lease.map_or(Ok(()), |lease| self.leases.check(id, lease))?;
        let new = || StoredSession { id: id.into(), origin: None, updated_at: 0, entries: vec![] };
        let mut session = read_session(&self.file(id))?.unwrap_or_else(new);
        backend::ensure_expected_version(id, expected, session.entries.len() as u64)?;
        // An entry that could not be read again must not be written.
        entries.iter().try_for_each(|entry| backend::entry_to_json_line(entry).map(drop))?;
        let version = expected + entries.len() as u64;
        if version > expected {
            session.entries.extend(entries);
            self.write(session)?;
        }
        Ok(version)
    }

    fn lease(&mut self, id: &str) -> Result<Lease, Error> {
        backend::ensure_id_not_empty(id)?;
        self.leases.take(id)
    }

    fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        Ok(read_session(&self.file(id))?
            .map(|session| session.entries.into_iter().skip(from).collect()))
    }

    fn list(&mut self) -> Result<Vec<SessionInfo>, Error> {
        let cannot = |error| store_error("cannot read the folder", error);
        let mut found = Vec::new();
        for file in fs::read_dir(&self.path).map_err(cannot)? {
            let path = file.map_err(cannot)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            found.push(match read_session(&path) {
                Ok(Some(session)) => SessionInfo {
                    version: session.entries.len() as u64,
                    id: session.id,
                    origin: session.origin,
                    updated_at: UNIX_EPOCH + Duration::from_micros(session.updated_at),
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

    fn fork(&mut self, id: &str, at: u64, new: &str) -> Result<(), Error> {
        backend::ensure_id_not_empty(new)?;
        backend::ensure_fork_point_exists(id, at, self.version(id)?)?;
        backend::ensure_session_absent(new, self.version(new)?)?;
        let count = usize::try_from(at).unwrap_or(usize::MAX);
        let entries = self.load(id, 0)?.into_iter().flatten().take(count).collect();
        let origin = Some(ForkOrigin { id: id.to_owned(), at });
        self.write(StoredSession { id: new.to_owned(), origin, updated_at: 0, entries })
    }

    fn delete(&mut self, id: &str) -> Result<bool, Error> {
        let sessions = self.list()?;
        let is_fork = |it: &&SessionInfo| it.origin.as_ref().is_some_and(|origin| origin.id == id);
        backend::ensure_has_no_forks(id, sessions.iter().find(is_fork).map(|fork| &fork.id))?;
        match fs::remove_file(self.file(id)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(store_error("cannot delete the session", error)),
        }
    }

    fn prune(&mut self, before: SystemTime) -> Result<Vec<String>, Error> {
        let sessions = self.list()?;
        let ids = backend::prunable_ids(&sessions, before);
        ids.into_iter().map(|id| self.delete(id).map(|_| id.to_owned())).collect()
    }
}

fn read_session(path: &Path) -> Result<Option<StoredSession>, Error> {
    let json = match fs::read(path) {
        Ok(json) => json,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(store_error("cannot read the session", error)),
    };
    let session = serde_json::from_slice(&json);
    session.map(Some).map_err(|error| store_error("the file is not a session", error.into()))
}

fn store_error(what: &str, source: io::Error) -> Error {
    Error::new(ErrorKind::Store, format!("{what}: {source}")).with_source(source)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let folder = env::temp_dir().join(format!("own-store-{}", std::process::id()));
    let agent = Agent::new(Scripted::new(["A store is a list that only grows."]));
    let session = Session::open(FolderStore::open(&folder)?, "chat").await?;
    session.run(&agent, "What is a store?").await?.outcome().await?;
    // Another process would find the same conversation.
    let session = Session::open(FolderStore::open(&folder)?, "chat").await?;
    for item in session.history().iter() {
        println!("{}", serde_json::to_string(item).unwrap_or_default());
    }
    fs::remove_dir_all(&folder).map_err(|error| store_error("cannot clean up", error))
}
