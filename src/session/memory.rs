//! An in-memory store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use crate::env::{Clock, SystemClock};
use crate::error::Error;
use crate::lock::lock_ignoring_poison;
use crate::session::backend::{
    BlockingStore, LocalLeases, ensure_expected_version, ensure_fork_point_exists,
    ensure_has_no_forks, ensure_id_not_empty, ensure_session_absent, prunable_ids,
};
use crate::session::{Entry, ForkOrigin, Lease, SessionInfo};

/// Stores sessions in memory. Clones share the sessions, which are dropped along with the last
/// clone.
///
/// Use this store for tests and for sessions that need not outlive the process.
#[derive(Clone, Default)]
pub struct MemoryStore {
    sessions: SharedSessions,
}

#[derive(Clone)]
struct SharedSessions {
    sessions_by_id: Arc<Mutex<HashMap<String, StoredSession>>>,
    leases: LocalLeases,
    /// Each clone may have its own clock.
    clock: Arc<dyn Clock>,
}

struct StoredSession {
    /// The entries that are not inherited from another session.
    own_entries: Vec<Entry>,
    fork_origin: Option<ForkOrigin>,
    updated_at: SystemTime,
}

impl Default for SharedSessions {
    fn default() -> Self {
        Self {
            sessions_by_id: Arc::default(),
            leases: LocalLeases::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

impl MemoryStore {
    /// Creates an empty store. Its sessions are lost when its last clone is dropped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock used to timestamp each write. The default is the system clock.
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.sessions.clock = Arc::new(clock);
        self
    }
}

impl SharedSessions {
    fn run<R>(
        &self,
        job: impl FnOnce(&mut Self) -> Result<R, Error>,
    ) -> impl Future<Output = Result<R, Error>> {
        let mut sessions = self.clone();
        async move { job(&mut sessions) }
    }

    fn lock_sessions(&self) -> MutexGuard<'_, HashMap<String, StoredSession>> {
        lock_ignoring_poison(&self.sessions_by_id)
    }
}

impl BlockingStore for SharedSessions {
    fn append(
        &mut self,
        lease: Option<&Lease>,
        id: &str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> Result<u64, Error> {
        ensure_id_not_empty(id)?;
        lease.map_or(Ok(()), |lease| self.leases.check(id, lease))?;
        let updated = self.clock.now();
        let mut sessions = self.lock_sessions();
        let found = sessions.get(id).map_or(0, StoredSession::version);
        ensure_expected_version(id, expected, found)?;
        if entries.is_empty() {
            return Ok(found);
        }
        let stored =
            sessions.entry(id.to_owned()).or_insert_with(|| StoredSession::new(None, updated));
        stored.own_entries.extend(entries);
        stored.updated_at = updated;
        Ok(stored.version())
    }

    fn lease(&mut self, id: &str) -> Result<Lease, Error> {
        ensure_id_not_empty(id)?;
        self.leases.take(id)
    }

    fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error> {
        let sessions = self.lock_sessions();
        let mut next = Some((id, u64::MAX));
        // Collects the session's own entries first, and then the own entries of each ancestor,
        // ending with the earliest.
        let mut parts = Vec::new();
        while let Some((id, until)) = next {
            let Some(stored) = sessions.get(id) else { return Ok(None) };
            let inherited = stored.inherited_entry_count();
            let own = |number: u64| {
                let at = usize::try_from(number.saturating_sub(inherited)).unwrap_or(usize::MAX);
                at.min(stored.own_entries.len())
            };
            parts.push(&stored.own_entries[own(from)..own(until).max(own(from))]);
            let parent = stored.fork_origin.as_ref().filter(|_| from < inherited);
            next = parent.map(|fork| (fork.id.as_str(), fork.at.min(until)));
        }
        Ok(Some(parts.into_iter().rev().flatten().cloned().collect()))
    }

    fn list(&mut self) -> Result<Vec<SessionInfo>, Error> {
        Ok(session_infos(&self.lock_sessions()))
    }

    fn fork(&mut self, id: &str, at: u64, new: &str) -> Result<(), Error> {
        ensure_id_not_empty(new)?;
        let updated = self.clock.now();
        let mut sessions = self.lock_sessions();
        ensure_fork_point_exists(id, at, sessions.get(id).map(StoredSession::version))?;
        ensure_session_absent(new, sessions.get(new).map(StoredSession::version))?;
        let fork = Some(ForkOrigin { id: id.to_owned(), at });
        sessions.insert(new.to_owned(), StoredSession::new(fork, updated));
        Ok(())
    }

    fn delete(&mut self, id: &str) -> Result<bool, Error> {
        let mut sessions = self.lock_sessions();
        let is_fork =
            |stored: &StoredSession| stored.fork_origin.as_ref().is_some_and(|fork| fork.id == id);
        ensure_has_no_forks(
            id,
            sessions.iter().find(|(_, stored)| is_fork(stored)).map(|(fork, _)| fork),
        )?;
        Ok(sessions.remove(id).is_some())
    }

    fn prune(&mut self, before: SystemTime) -> Result<Vec<String>, Error> {
        let mut sessions = self.lock_sessions();
        let listed = session_infos(&sessions);
        let removed: Vec<String> =
            prunable_ids(&listed, before).into_iter().map(String::from).collect();
        for id in &removed {
            sessions.remove(id);
        }
        Ok(removed)
    }
}

fn session_infos(sessions: &HashMap<String, StoredSession>) -> Vec<SessionInfo> {
    let listed = |(id, stored): (&String, &StoredSession)| SessionInfo {
        id: id.clone(),
        version: stored.version(),
        origin: stored.fork_origin.clone(),
        updated_at: stored.updated_at,
        read_error: None,
    };
    let mut listed: Vec<SessionInfo> = sessions.iter().map(listed).collect();
    listed.sort_by(SessionInfo::list_order);
    listed
}

impl StoredSession {
    fn new(fork: Option<ForkOrigin>, updated: SystemTime) -> Self {
        Self { own_entries: Vec::new(), fork_origin: fork, updated_at: updated }
    }

    fn inherited_entry_count(&self) -> u64 {
        self.fork_origin.as_ref().map_or(0, |fork| fork.at)
    }

    fn version(&self) -> u64 {
        self.inherited_entry_count() + self.own_entries.len() as u64
    }
}

crate::session::backend::impl_blocking_store!(MemoryStore, sessions);

impl_debug!(MemoryStore(it), sessions = it.sessions.lock_sessions().len());
