//! A session, as a program holds it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, panic_to_error_async};
use crate::item::History;
use crate::lock::lock_ignoring_poison;
use crate::session::checks::{corrupt_data_error, ensure_id_not_empty};
use crate::session::restore::EntryFold;
use crate::session::{Conflict, Entry, Lease, SessionState, Store};

/// A conversation that is kept in a store as it goes on. Clones share it.
///
/// What it shows is what is durable. [`run`](Self::run) goes on with it, and
/// [`resume`](Self::resume) with what was broken off; `recorded`, of
/// [`PersistExt`](crate::session::PersistExt), writes the events of a loop of your own.
///
/// Its history has the session's id, so that tools know their calls by `{session id}/{call id}`, also
/// after a restart.
///
/// A session has one run at a time: [`run`](Self::run) and [`resume`](Self::resume) take its [lease](Lease), and of
/// two, here or in two processes, the second gets an error whose source is
/// [`AlreadyLeased`](crate::session::AlreadyLeased). The lease ends with the run: with its last event, or when it is
/// dropped. Loops of your own and [checkpoints](Self::checkpoint) take none: of two that write, the one whose append
/// comes second gets a [`Conflict`].
///
/// ```
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::session::{MemoryStore, Session};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let store = MemoryStore::new();
/// let agent = Agent::new(Scripted::new(["Hello!", "You said: Hi."]));
///
/// let session = Session::open(store.clone(), "greetings").await?;
/// session.run(&agent, "Hi").await?.outcome().await?;
///
/// // Later, or elsewhere.
/// let session = Session::open(store, "greetings").await?;
/// let outcome = session.run(&agent, "What did I say?").await?.outcome().await?;
/// assert_eq!(outcome.history.len(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    store: Arc<dyn Store>,
    id: Arc<str>,
    cache: Arc<Mutex<SessionCache>>,
}

/// What is known of the entries in the store.
struct SessionCache {
    /// How many were read or written.
    version: u64,
    fold: EntryFold,
    /// The last of them, if it is known: a session that was deleted and made again has another one there.
    last_entry: Option<Entry>,
    state: CacheState,
    /// How often any of this was changed.
    change_count: u64,
    /// The epoch of the last lease that was taken by this.
    last_epoch: u64,
}

/// What is not known of the entries in the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CacheState {
    Current,
    /// There may be more: an append failed, or nobody waited for it.
    Stale,
    /// There are others: the store has fewer, or says what cannot be.
    Invalid,
}

impl SessionCache {
    fn update(&mut self, version: u64, restored: EntryFold, last_entry: Option<Entry>) {
        (self.version, self.fold, self.state) = (version, restored, CacheState::Current);
        self.last_entry = last_entry;
        self.change_count += 1;
    }

    fn invalidate(&mut self, doubt: CacheState) {
        if self.state != CacheState::Invalid {
            self.state = doubt;
        }
        self.change_count += 1;
    }
}

impl Session {
    /// Opens a session. One that the store does not have is empty, and is made by its first append.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if it cannot be read, and
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if the id is empty.
    pub async fn open(store: impl Store + 'static, id: impl Into<String>) -> Result<Self, Error> {
        let id: Arc<str> = id.into().into();
        ensure_id_not_empty(&id)?;
        let session = Self::from_parts(Arc::new(store), EntryFold::new(id), 0);
        session.refresh_cache().await?;
        Ok(session)
    }

    pub(super) fn from_parts(store: Arc<dyn Store>, restored: EntryFold, version: u64) -> Self {
        let id = restored.history().id().into();
        let cell = SessionCache {
            version,
            fold: restored,
            last_entry: None,
            state: CacheState::Current,
            change_count: 0,
            last_epoch: 0,
        };
        Self { store, id, cache: Arc::new(Mutex::new(cell)) }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What was said, as far as it is durable: a turn that streams is not in it, and of the calls
    /// of a turn those results that have come. It can be sent after [`History::settled`].
    pub fn history(&self) -> History {
        self.lock_cache().fold.history()
    }

    /// How many entries are known to be in the store.
    pub fn version(&self) -> u64 {
        self.lock_cache().version
    }

    /// What it is waiting for. While a run goes on, that is what would be left if it were dropped.
    pub fn state(&self) -> SessionState {
        self.lock_cache().fold.session_state()
    }

    /// Reads what somebody else has written.
    ///
    /// A run does this by itself if an append has failed, or was dropped, since.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if it cannot be read.
    pub async fn reload(&self) -> Result<(), Error> {
        self.refresh_cache().await
    }

    /// All entries, those that were folded away included.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if they cannot be read.
    pub async fn entries(&self) -> Result<Vec<Entry>, Error> {
        Ok(self.read_entries_from(0).await?.unwrap_or_default())
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The version, and what its entries make of the history. What is not known is read first.
    pub(super) async fn current_fold(&self) -> Result<(u64, EntryFold), Error> {
        if self.lock_cache().state != CacheState::Current {
            self.refresh_cache().await?;
        }
        Ok(self.cached_fold())
    }

    /// Takes the lease, and then reads what is not known: others may have had the lease since.
    pub(super) async fn lease(&self) -> Result<Lease, Error> {
        let lease = catch_store_panic(async { self.store.lease(&self.id).await }).await?;
        let last = self.lock_cache().last_epoch;
        // A store without leases shows it with a conflict, as it does for what else is written meanwhile.
        if ![0, last.wrapping_add(1)].contains(&lease.epoch()) {
            self.refresh_cache().await?;
        }
        // If that failed, the next lease reads again.
        self.lock_cache().last_epoch = lease.epoch();
        Ok(lease)
    }

    /// The same as far as it is known.
    pub(super) fn cached_fold(&self) -> (u64, EntryFold) {
        let cell = self.lock_cache();
        (cell.version, cell.fold.clone())
    }

    async fn refresh_cache(&self) -> Result<(), Error> {
        let (changes, mut from, mut restored, mut last) = {
            let cell = self.lock_cache();
            match cell.state {
                CacheState::Current | CacheState::Stale => {
                    (cell.change_count, cell.version, cell.fold.clone(), cell.last_entry.clone())
                }
                CacheState::Invalid => {
                    (cell.change_count, 0, EntryFold::new(Arc::clone(&self.id)), None)
                }
            }
        };
        let known = u64::from(last.is_some());
        let mut entries = self.read_entries_from(from - known).await?;
        if let (Some(last), Some(found)) = (&last, &mut entries)
            && (found.is_empty() || found.remove(0) != *last)
        {
            // It is another session.
            (from, restored) = (0, EntryFold::new(Arc::clone(&self.id)));
            entries = self.read_entries_from(0).await?;
        }
        if entries.is_none() {
            // There is none, or none any more.
            (from, restored, last) = (0, EntryFold::new(Arc::clone(&self.id)), None);
        }
        let entries = entries.unwrap_or_default();
        let version = from + entries.len() as u64;
        last = entries.last().cloned().or(last);
        restored.extend(entries);
        let mut cell = self.lock_cache();
        if cell.change_count == changes {
            cell.update(version, restored, last);
        } else if cell.state != CacheState::Invalid && cell.version < version {
            // Somebody has written meanwhile, or tried to. What that has left is still not known.
            (cell.version, cell.fold, cell.last_entry) = (version, restored, last);
        }
        Ok(())
    }

    async fn read_entries_from(&self, from: u64) -> Result<Option<Vec<Entry>>, Error> {
        catch_store_panic(async { self.store.load(&self.id, from).await }).await
    }

    /// Writes entries after those that made `restored`, if there are any, under the lease if there is one.
    /// Gives what is known then.
    pub(super) async fn append_and_fold(
        &self,
        lease: Option<&Lease>,
        version: u64,
        mut restored: EntryFold,
        entries: Vec<Entry>,
    ) -> Result<(u64, EntryFold), Error> {
        if entries.is_empty() {
            return Ok((version, restored));
        }
        restored.extend(entries.iter().cloned());
        let version =
            self.append_entries(lease.cloned(), version, entries, restored.clone()).await?;
        Ok((version, restored))
    }

    /// Writes entries behind the `expected` ones, which make `restored` of the history. If nobody
    /// waits for the end of it, it is not known whether they are there.
    pub(super) fn append_entries(
        &self,
        lease: Option<Lease>,
        expected: u64,
        entries: Vec<Entry>,
        restored: EntryFold,
    ) -> BoxFuture<'static, Result<u64, Error>> {
        let session = self.clone();
        let next = expected + entries.len() as u64;
        let last = entries.last().cloned();
        async move {
            let doubting = AppendGuard(Some(&session));
            let written = catch_store_panic(async {
                match &lease {
                    Some(lease) => {
                        session.store.append_leased(lease, &session.id, expected, entries).await
                    }
                    None => session.store.append(&session.id, expected, entries).await,
                }
            })
            .await;
            let version = match written {
                Ok(version) if version == next => version,
                Ok(version) => {
                    session.lock_cache().invalidate(CacheState::Invalid);
                    let id = &session.id;
                    let what =
                        format!("the store says that `{id}` has version {version}, not {next}");
                    return Err(corrupt_data_error(what));
                }
                Err(error) => {
                    if Conflict::from_error(&error)
                        .is_some_and(|conflict| conflict.found < expected)
                    {
                        session.lock_cache().invalidate(CacheState::Invalid);
                    }
                    return Err(error);
                }
            };
            doubting.disarm();
            let mut cell = session.lock_cache();
            if cell.version <= version {
                cell.update(version, restored, last);
            }
            drop(cell);
            Ok(version)
        }
        .boxed()
    }

    fn lock_cache(&self) -> MutexGuard<'_, SessionCache> {
        // Nothing of a user runs while it is held.
        lock_ignoring_poison(&self.cache)
    }
}

/// While it is there, nobody knows what the store has.
struct AppendGuard<'a>(Option<&'a Session>);

impl AppendGuard<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for AppendGuard<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.lock_cache().invalidate(CacheState::Stale);
        }
    }
}

/// What the store answers; its panic is an error.
pub(super) async fn catch_store_panic<T>(
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    panic_to_error_async("the store", answer).await
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}
