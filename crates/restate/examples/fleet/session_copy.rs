//! A copy of the sessions, for lists and search.
//!
//! Restate has the sessions, but cannot list them. So their entries are copied, one way, to a store
//! that can: PostgreSQL, or the memory of this process. Workers copy a session to PostgreSQL after
//! each run. The front end also copies the sessions that are in use, so that the list shows a
//! session during its first run, and without PostgreSQL.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use turnstream::Error;
use turnstream::durable::storage::copy_session;
use turnstream::session::Store;
use turnstream_restate::Client;

use crate::views::LIST_PAGE;

const COPY_EVERY: Duration = Duration::from_secs(2);

/// How long a session is copied after its last use or its last new entry.
const FOLLOW_FOR: Duration = Duration::from_mins(10);

pub(crate) struct SessionCopy {
    client: Client,
    store: Arc<dyn Store>,
    followed: Mutex<HashMap<String, FollowedSession>>,
    /// Held while entries are copied.
    copying: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy)]
struct FollowedSession {
    /// The number of entries of the copy, if it is known.
    version: Option<u64>,
    used: Instant,
}

impl SessionCopy {
    pub(crate) fn new(client: Client, store: Arc<dyn Store>) -> Self {
        Self { client, store, followed: Mutex::default(), copying: tokio::sync::Mutex::default() }
    }

    /// The store that has the copy.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Copies a session regularly from now on.
    pub(crate) fn follow(&self, id: &str) {
        let mut followed = self.followed();
        let new = FollowedSession { version: None, used: Instant::now() };
        followed.entry(id.to_owned()).or_insert(new).used = Instant::now();
    }

    /// Copies sessions as long as the process runs. The most recent sessions are followed from the
    /// start, because their runs may have continued while no front end was running.
    pub(crate) async fn copy_forever(&self) {
        match self.store.list_page(None, LIST_PAGE).await {
            Ok(listed) => listed.iter().for_each(|info| self.follow(&info.id)),
            Err(error) => eprintln!("the copy of the sessions cannot be read: {error}"),
        }
        loop {
            self.copy_all().await;
            tokio::time::sleep(COPY_EVERY).await;
        }
    }

    /// Copies the new entries of all followed sessions.
    pub(crate) async fn copy_all(&self) {
        let _copying = self.copying.lock().await;
        self.followed().retain(|_, session| session.used.elapsed() < FOLLOW_FOR);
        let followed: Vec<_> =
            self.followed().iter().map(|(id, session)| (id.clone(), session.version)).collect();
        for (id, version) in followed {
            match self.copy(&id, version).await {
                Ok(copied) => self.note_version(&id, version, Some(copied)),
                // Tried again later: Restate or the database may be restarting.
                Err(_) => self.note_version(&id, version, None),
            }
        }
    }

    fn note_version(&self, id: &str, before: Option<u64>, now: Option<u64>) {
        if let Some(session) = self.followed().get_mut(id) {
            session.version = now;
            if before != now && now.is_some() {
                session.used = Instant::now();
            }
        }
    }

    /// Copies a session if it has new entries. Returns the number of its entries.
    async fn copy(&self, id: &str, version: Option<u64>) -> Result<u64, Error> {
        let now = self.client.status(id).await?.version;
        if Some(now) == version {
            return Ok(now);
        }
        let entries = self.client.history(id, 0).await?;
        copy_session(&self.store, id, &entries).await
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<String, FollowedSession>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
