//! A store in memory.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use futures::future::{BoxFuture, FutureExt, ready};

use crate::env::{Clock, SystemClock};
use crate::error::Error;
use crate::lock::lock;
use crate::session::prune::prunable;
use crate::session::refusal::{
    refuse_beyond, refuse_empty, refuse_forked, refuse_other, refuse_there,
};
use crate::session::{Entry, Fork, Listed, Store};

/// A store in memory, gone with its last clone. Clones share it.
///
/// For tests, and for sessions that need not outlive the process.
#[derive(Clone)]
pub struct MemoryStore {
    sessions: Arc<Mutex<HashMap<String, Kept>>>,
    clock: Arc<dyn Clock>,
}

struct Kept {
    /// The entries of its own.
    entries: Vec<Entry>,
    fork: Option<Fork>,
    updated: SystemTime,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { sessions: Arc::default(), clock: Arc::new(SystemClock) }
    }
}

impl MemoryStore {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock by which sessions are listed; the system's unless set.
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        lock(&self.sessions)
    }

    fn append_now(&self, id: &str, expected: u64, entries: Vec<Entry>) -> Result<u64, Error> {
        refuse_empty(id)?;
        let updated = self.clock.now();
        let mut sessions = self.sessions();
        let found = sessions.get(id).map_or(0, Kept::version);
        refuse_other(id, expected, found)?;
        if entries.is_empty() {
            return Ok(found);
        }
        let kept = sessions.entry(id.to_owned()).or_insert_with(|| Kept::new(None, updated));
        kept.entries.extend(entries);
        kept.updated = updated;
        Ok(kept.version())
    }

    fn load_now(&self, id: &str, from: u64) -> Option<Vec<Entry>> {
        let sessions = self.sessions();
        let mut next = Some((id, sessions.get(id)?.version()));
        // From the newest part to the one that the others came from.
        let mut parts = Vec::new();
        while let Some((id, until)) = next {
            let kept = sessions.get(id)?;
            let inherited = kept.inherited();
            let own = |number: u64| {
                let at = usize::try_from(number.saturating_sub(inherited)).unwrap_or(usize::MAX);
                at.min(kept.entries.len())
            };
            parts.push(&kept.entries[own(from)..own(until).max(own(from))]);
            let parent = kept.fork.as_ref().filter(|_| from < inherited);
            next = parent.map(|fork| (fork.id.as_str(), fork.at.min(until)));
        }
        Some(parts.into_iter().rev().flatten().cloned().collect())
    }

    fn list_now(sessions: &HashMap<String, Kept>) -> Vec<Listed> {
        let listed = |(id, kept): (&String, &Kept)| Listed {
            id: id.clone(),
            version: kept.version(),
            fork: kept.fork.clone(),
            updated: kept.updated,
        };
        let mut listed: Vec<Listed> = sessions.iter().map(listed).collect();
        listed.sort_by(|a, b| b.updated.cmp(&a.updated).then_with(|| a.id.cmp(&b.id)));
        listed
    }

    fn fork_now(&self, id: &str, at: u64, new: &str) -> Result<(), Error> {
        refuse_empty(new)?;
        let updated = self.clock.now();
        let mut sessions = self.sessions();
        refuse_beyond(id, at, sessions.get(id).map(Kept::version))?;
        refuse_there(new, sessions.get(new).map(Kept::version))?;
        let fork = Some(Fork { id: id.to_owned(), at });
        sessions.insert(new.to_owned(), Kept::new(fork, updated));
        Ok(())
    }

    fn delete_now(&self, id: &str) -> Result<bool, Error> {
        let mut sessions = self.sessions();
        let is_fork = |kept: &Kept| kept.fork.as_ref().is_some_and(|fork| fork.id == id);
        refuse_forked(id, sessions.iter().find(|(_, kept)| is_fork(kept)).map(|(fork, _)| fork))?;
        Ok(sessions.remove(id).is_some())
    }

    fn prune_now(&self, before: SystemTime) -> Vec<String> {
        let mut sessions = self.sessions();
        let listed = Self::list_now(&sessions);
        let removed: Vec<String> =
            prunable(&listed, before).into_iter().map(String::from).collect();
        for id in &removed {
            sessions.remove(id);
        }
        removed
    }
}

impl Kept {
    fn new(fork: Option<Fork>, updated: SystemTime) -> Self {
        Self { entries: Vec::new(), fork, updated }
    }

    fn inherited(&self) -> u64 {
        self.fork.as_ref().map_or(0, |fork| fork.at)
    }

    fn version(&self) -> u64 {
        self.inherited() + self.entries.len() as u64
    }
}

impl Store for MemoryStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        // Nothing is written before it is polled.
        async move { self.append_now(id, expected, entries) }.boxed()
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        ready(Ok(self.load_now(id, from))).boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, Error>> {
        ready(Ok(Self::list_now(&self.sessions()))).boxed()
    }

    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        async move { self.fork_now(id, at, new) }.boxed()
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        async move { self.delete_now(id) }.boxed()
    }

    fn prune(&self, before: SystemTime) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        async move { Ok(self.prune_now(before)) }.boxed()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("sessions", &self.sessions().len())
            .finish_non_exhaustive()
    }
}
