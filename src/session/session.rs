//! The handle to a session.

use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, ErrorKind, panic_to_error_async};
use crate::item::{Grant, History};
use crate::lock::lock_ignoring_poison;
use crate::session::backend::{corrupt_data_error, ensure_id_not_empty};
use crate::session::restore::EntryFold;
use crate::session::{Conflict, Entry, Lease, SessionState, Store};
use crate::usage::Usage;

/// A conversation that is stored as it progresses. Clones of a session share the same state.
///
/// Methods that return the session's data return only durable data. [`run`](Self::run) starts a
/// run, [`resume`](Self::resume) continues interrupted work, and
/// [`persist_to`](crate::session::PersistExt::persist_to) writes the events from a hand-written
/// agent loop.
///
/// The history's id is the session's id, so a call's idempotency key is `{session id}/{call id}`,
/// even after a restart.
///
/// A session can have only one active run at a time, because [`run`](Self::run) and
/// [`resume`](Self::resume) acquire the session's [lease](Lease). If a second run is started in any
/// process while the first run is active, starting the second run fails with an error whose source
/// is [`AlreadyLeased`](crate::session::AlreadyLeased). The lease is released after the run's last
/// event, or when the run is dropped. Hand-written loops and [checkpoints](Self::checkpoint) do not
/// acquire a lease. If two writers without a lease append concurrently, the second append fails
/// with a [`Conflict`].
///
/// If the future of a method is dropped, no run starts, a running compactor is dropped, and the
/// lease is released. An append that has already been passed to the store may still be written, as
/// a whole; the next run or checkpoint then reads the session again. A fork may already exist in
/// the store, possibly without results for its open calls; delete it before you fork again under
/// the same id.
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
/// // Later, or in another process.
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
    /// Whether runs store the histories of sub-agents that have ended.
    keeps_sub_agents: bool,
}

/// The cached state of a stored session.
struct SessionCache {
    /// The number of entries that have been read or written.
    version: u64,
    fold: EntryFold,
    /// The last entry, if known. If the store contains a different entry at this position, the
    /// session has been deleted and recreated.
    last_entry: Option<Entry>,
    state: CacheState,
    /// The number of times that this cache has changed.
    change_count: u64,
    /// The epoch of the last lease that this session handle acquired.
    last_epoch: u64,
}

/// Whether the cache matches the entries in the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CacheState {
    Current,
    /// The store may contain entries that are not in the cache, because an append failed or its
    /// future was dropped.
    Stale,
    /// The cached entries differ from the stored entries, because the store contains fewer entries
    /// or has returned an impossible version.
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
    /// Opens a session. If the session does not exist in the store, the returned session is empty,
    /// and its first append creates the session in the store.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the session cannot be read, and
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
        let cache = SessionCache {
            version,
            fold: restored,
            last_entry: None,
            state: CacheState::Current,
            change_count: 0,
            last_epoch: 0,
        };
        Self { store, id, cache: Arc::new(Mutex::new(cache)), keeps_sub_agents: false }
    }

    /// Lets later runs of this handle store the history of each sub-agent that ends, in an entry
    /// before the result of the call that ran it. By default, only the histories of suspended
    /// sub-agents are stored.
    ///
    /// The histories are never sent to a model. [`sub_agent_history`](Self::sub_agent_history)
    /// returns them, and a page that is opened later shows them; see
    /// [`AiSdk::load_messages`](crate::ui::ai_sdk::AiSdk::load_messages) and
    /// [`AgUi::load_messages`](crate::ui::ag_ui::AgUi::load_messages). The history of a sub-agent
    /// below another sub-agent is not stored, and neither are those of [durable](crate::durable)
    /// runs.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::Agent;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::session::{MemoryStore, Session};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let reader = Agent::new(Scripted::new(["Two pages."]));
    /// let call = Reply::new().call_raw("c1", "read", &json!({ "prompt": "Count" }).to_string());
    /// let agent = Agent::new(Scripted::new([call, "It has two pages.".into()]))
    ///     .with_tool(reader.as_tool("read", "Reads")?);
    /// let session = Session::open(MemoryStore::new(), "s").await?.with_sub_agent_histories();
    /// session.run(&agent, "How long is it?").await?.outcome().await?;
    ///
    /// let history = session.sub_agent_history("c1").await?.unwrap();
    /// assert_eq!(history.last().unwrap().as_text(), Some("Two pages."));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_sub_agent_histories(mut self) -> Self {
        self.keeps_sub_agents = true;
        self
    }

    pub(super) fn keeps_sub_agents(&self) -> bool {
        self.keeps_sub_agents
    }

    /// Reads all entries, and returns the stored history of the sub-agent that the call ran, if
    /// any; see [`with_sub_agent_histories`](Self::with_sub_agent_histories).
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the entries cannot be read.
    pub async fn sub_agent_history(&self, call_id: &str) -> Result<Option<History>, Error> {
        let entries = self.entries().await?;
        Ok(entries.into_iter().rev().find_map(|entry| match entry {
            Entry::Nested { call_id: id, history, .. } if id == call_id => Some(history),
            _ => None,
        }))
    }

    /// Returns the session's id, which is also the id of its [history](Self::history).
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the durable part of the history. The returned history does not include a turn that
    /// is still streaming or results that have not arrived yet. Before you send the history to a
    /// model, call [`History::settled`].
    pub fn history(&self) -> History {
        self.lock_cache().fold.history()
    }

    /// Returns the number of entries known to be in the store. To read only the entries that are
    /// appended later, pass this number to [`Store::load`](crate::session::Store::load).
    pub fn version(&self) -> u64 {
        self.lock_cache().version
    }

    /// Returns whether the session is idle, pending or unfinished. Continue an idle session with
    /// [`run`](Self::run), and any other with [`resume`](Self::resume). While a run is active, this
    /// method returns the state that the session would have if the run were dropped now.
    pub fn state(&self) -> SessionState {
        self.lock_cache().fold.session_state()
    }

    /// Returns the grants that were given for the rest of the session and have not been revoked. A
    /// run of the session has these grants.
    ///
    /// A [fork](Self::fork_at) has the grants that were given before the fork point.
    pub fn grants(&self) -> Vec<Grant> {
        self.lock_cache().fold.grants().to_vec()
    }

    /// Revokes a grant of the session. The revocation is durable once the returned future
    /// completes.
    ///
    /// While a run is active, use [`RunHandle::revoke_grant`](crate::RunHandle::revoke_grant),
    /// which takes effect at once. If the returned future is dropped, the grant may or may not be
    /// revoked.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if the session has no grant with this
    /// id. [`Conflict`](crate::ErrorKind::Conflict) if a run holds the session's lease, or if
    /// another process has written to the session since this handle last read it.
    /// [`Store`](crate::ErrorKind::Store) if the store fails.
    pub async fn revoke_grant(&self, grant_id: &str) -> Result<(), Error> {
        let lease = self.lease().await?;
        let (version, restored) = self.current_fold().await?;
        if restored.grants().iter().all(|grant| grant.id != grant_id) {
            let message = "there is no grant with this id";
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter(grant_id));
        }
        let entries = vec![Entry::GrantRevoked { grant_id: grant_id.to_owned() }];
        self.append_and_fold(Some(&lease), version, restored, entries).await.map(drop)
    }

    /// Reads the entries that other writers have appended to the session.
    ///
    /// If an earlier append failed or its future was dropped, the next run reloads the session
    /// automatically.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the session cannot be read.
    pub async fn reload(&self) -> Result<(), Error> {
        self.refresh_cache().await
    }

    /// Returns all of the session's entries, including entries for items that have been compacted.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if the entries cannot be read.
    pub async fn entries(&self) -> Result<Vec<Entry>, Error> {
        Ok(self.read_entries_from(0).await?.unwrap_or_default())
    }

    /// Reads all entries, and returns the tokens that the session's turns have used, including
    /// turns that were replaced by a summary or turned into tombstones.
    ///
    /// The record contains the usage of complete turns only. Retracted attempts, requests for
    /// summaries, requests of hooks and the runs of sub-agents are not included.
    /// [`Budget::with_earlier_usage`](crate::agent::Budget::with_earlier_usage) makes a token limit
    /// hold for the whole session.
    ///
    /// # Errors
    ///
    /// Returns the store's error if the entries cannot be read.
    pub async fn usage(&self) -> Result<Usage, Error> {
        let entries = self.entries().await?;
        let items = entries.iter().filter_map(|entry| match entry {
            Entry::Item(item) => Some(item),
            _ => None,
        });
        Ok(items.filter_map(|item| item.turn.as_ref()).map(|turn| turn.usage).sum())
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the session's version and the fold of all entries up to that version. If the cache
    /// is not current, it is first refreshed from the store.
    pub(super) async fn current_fold(&self) -> Result<(u64, EntryFold), Error> {
        if self.lock_cache().state != CacheState::Current {
            self.refresh_cache().await?;
        }
        Ok(self.cached_fold())
    }

    /// Acquires the session's lease. If another process may have held the lease since this handle
    /// last held it, the cache is refreshed.
    pub(super) async fn lease(&self) -> Result<Lease, Error> {
        let lease = catch_store_panic(async { self.store.lease(&self.id).await }).await?;
        let last = self.lock_cache().last_epoch;
        // A store without leases reports other writers through a conflict at the next append.
        if ![0, last.wrapping_add(1)].contains(&lease.epoch()) {
            self.refresh_cache().await?;
        }
        // The epoch is not recorded if refreshing the cache failed, so that the next call refreshes
        // the cache again.
        self.lock_cache().last_epoch = lease.epoch();
        Ok(lease)
    }

    /// Returns the cached version of the session, and the cached fold of the entries up to this
    /// version.
    pub(super) fn cached_fold(&self) -> (u64, EntryFold) {
        let cache = self.lock_cache();
        (cache.version, cache.fold.clone())
    }

    async fn refresh_cache(&self) -> Result<(), Error> {
        let (changes, mut from, mut restored, mut last) = {
            let cache = self.lock_cache();
            match cache.state {
                CacheState::Current | CacheState::Stale => (
                    cache.change_count,
                    cache.version,
                    cache.fold.clone(),
                    cache.last_entry.clone(),
                ),
                CacheState::Invalid => {
                    (cache.change_count, 0, EntryFold::new(Arc::clone(&self.id)), None)
                }
            }
        };
        let known = u64::from(last.is_some());
        let mut entries = self.read_entries_from(from - known).await?;
        if let (Some(last), Some(found)) = (&last, &mut entries)
            && (found.is_empty() || found.remove(0) != *last)
        {
            // The session was deleted and recreated.
            (from, restored) = (0, EntryFold::new(Arc::clone(&self.id)));
            entries = self.read_entries_from(0).await?;
        }
        if entries.is_none() {
            // The session does not exist, or no longer exists.
            (from, restored, last) = (0, EntryFold::new(Arc::clone(&self.id)), None);
        }
        let entries = entries.unwrap_or_default();
        let version = from + entries.len() as u64;
        last = entries.last().cloned().or(last);
        restored.extend(entries);
        let mut cache = self.lock_cache();
        if cache.change_count == changes {
            cache.update(version, restored, last);
        } else if cache.state != CacheState::Invalid && cache.version < version {
            // An append completed or failed while the entries were being read, so `state` stays
            // unchanged.
            (cache.version, cache.fold, cache.last_entry) = (version, restored, last);
        }
        Ok(())
    }

    pub(super) async fn read_entries_from(&self, from: u64) -> Result<Option<Vec<Entry>>, Error> {
        catch_store_panic(async { self.store.load(&self.id, from).await }).await
    }

    /// Appends entries to the session after the entries in `restored`. If `lease` is given, the
    /// append fails once the lease has been lost. Returns the new version and fold. Does nothing if
    /// `entries` is empty.
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

    /// Appends entries after the session's first `expected` entries. `restored` is the fold that
    /// already includes the appended entries. If the returned future is dropped, it is unknown
    /// whether the entries were written.
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
                    if error
                        .find_source::<Conflict>()
                        .is_some_and(|conflict| conflict.found < expected)
                    {
                        session.lock_cache().invalidate(CacheState::Invalid);
                    }
                    return Err(error);
                }
            };
            doubting.disarm();
            let mut cache = session.lock_cache();
            if cache.version <= version {
                cache.update(version, restored, last);
            }
            drop(cache);
            Ok(version)
        }
        .boxed()
    }

    fn lock_cache(&self) -> MutexGuard<'_, SessionCache> {
        // No user code runs while the cache is locked.
        lock_ignoring_poison(&self.cache)
    }
}

/// Marks the session's cache as stale when the guard is dropped, unless the guard has been
/// disarmed.
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

/// Awaits a store's future, and converts a panic in the store to an error.
pub(super) async fn catch_store_panic<T>(
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    panic_to_error_async("the store", answer).await
}

impl_debug!(Session(it), id = it.id, version = it.version());
