//! A store in memory.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use futures::future::{BoxFuture, FutureExt};

use crate::env::{Clock, SystemClock};
use crate::error::Error;
use crate::lock::lock_ignoring_poison;
use crate::session::jobs::{BlockingStore, store_of_jobs};
use crate::session::prune::prunable_ids;
use crate::session::refusal::{
    ensure_absent, ensure_id_not_empty, ensure_in_range, ensure_not_forked, ensure_version,
};
use crate::session::{Entry, ForkOrigin, SessionInfo};

/// A store in memory, gone with its last clone. Clones share it.
///
/// For tests, and for sessions that need not outlive the process.
#[derive(Clone, Default)]
pub struct MemoryStore {
    sessions: SharedSessions,
}

#[derive(Clone)]
struct SharedSessions {
    kept: Arc<Mutex<HashMap<String, StoredSession>>>,
    /// Each clone may have its own.
    clock: Arc<dyn Clock>,
}

struct StoredSession {
    /// The entries of its own.
    entries: Vec<Entry>,
    fork: Option<ForkOrigin>,
    updated: SystemTime,
}

impl Default for SharedSessions {
    fn default() -> Self {
        Self { kept: Arc::default(), clock: Arc::new(SystemClock) }
    }
}

impl MemoryStore {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock by which sessions are listed; the system's unless set.
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

    fn kept(&self) -> MutexGuard<'_, HashMap<String, StoredSession>> {
        lock_ignoring_poison(&self.kept)
    }
}

impl BlockingStore for SharedSessions {
    fn append(&mut self, id: &str, expected: u64, entries: Vec<Entry>) -> Result<u64, Error> {
        ensure_id_not_empty(id)?;
        let updated = self.clock.now();
        let mut sessions = self.kept();
        let found = sessions.get(id).map_or(0, StoredSession::version);
        ensure_version(id, expected, found)?;
        if entries.is_empty() {
            return Ok(found);
        }
        let kept =
            sessions.entry(id.to_owned()).or_insert_with(|| StoredSession::new(None, updated));
        kept.entries.extend(entries);
        kept.updated = updated;
        Ok(kept.version())
    }

    fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error> {
        let sessions = self.kept();
        let mut next = Some((id, u64::MAX));
        // From the newest part to the one that the others came from.
        let mut parts = Vec::new();
        while let Some((id, until)) = next {
            let Some(kept) = sessions.get(id) else { return Ok(None) };
            let inherited = kept.inherited();
            let own = |number: u64| {
                let at = usize::try_from(number.saturating_sub(inherited)).unwrap_or(usize::MAX);
                at.min(kept.entries.len())
            };
            parts.push(&kept.entries[own(from)..own(until).max(own(from))]);
            let parent = kept.fork.as_ref().filter(|_| from < inherited);
            next = parent.map(|fork| (fork.id.as_str(), fork.at.min(until)));
        }
        Ok(Some(parts.into_iter().rev().flatten().cloned().collect()))
    }

    fn list(&mut self) -> Result<Vec<SessionInfo>, Error> {
        Ok(session_infos(&self.kept()))
    }

    fn fork(&mut self, id: &str, at: u64, new: &str) -> Result<(), Error> {
        ensure_id_not_empty(new)?;
        let updated = self.clock.now();
        let mut sessions = self.kept();
        ensure_in_range(id, at, sessions.get(id).map(StoredSession::version))?;
        ensure_absent(new, sessions.get(new).map(StoredSession::version))?;
        let fork = Some(ForkOrigin { id: id.to_owned(), at });
        sessions.insert(new.to_owned(), StoredSession::new(fork, updated));
        Ok(())
    }

    fn delete(&mut self, id: &str) -> Result<bool, Error> {
        let mut sessions = self.kept();
        let is_fork = |kept: &StoredSession| kept.fork.as_ref().is_some_and(|fork| fork.id == id);
        ensure_not_forked(
            id,
            sessions.iter().find(|(_, kept)| is_fork(kept)).map(|(fork, _)| fork),
        )?;
        Ok(sessions.remove(id).is_some())
    }

    fn prune(&mut self, before: SystemTime) -> Result<Vec<String>, Error> {
        let mut sessions = self.kept();
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
    let listed = |(id, kept): (&String, &StoredSession)| SessionInfo {
        id: id.clone(),
        version: kept.version(),
        origin: kept.fork.clone(),
        updated: kept.updated,
    };
    let mut listed: Vec<SessionInfo> = sessions.iter().map(listed).collect();
    listed.sort_by(|a, b| b.updated.cmp(&a.updated).then_with(|| a.id.cmp(&b.id)));
    listed
}

impl StoredSession {
    fn new(fork: Option<ForkOrigin>, updated: SystemTime) -> Self {
        Self { entries: Vec::new(), fork, updated }
    }

    fn inherited(&self) -> u64 {
        self.fork.as_ref().map_or(0, |fork| fork.at)
    }

    fn version(&self) -> u64 {
        self.inherited() + self.entries.len() as u64
    }
}

store_of_jobs!(MemoryStore);

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("sessions", &self.sessions.kept().len())
            .finish_non_exhaustive()
    }
}
