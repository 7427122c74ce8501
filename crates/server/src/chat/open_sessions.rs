//! The sessions of all principals.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use turnstream::Error;
use turnstream::hub::Hub;
use turnstream::session::{Session, SessionInfo, Store};

use super::failure::Failure;
use super::limits::ChatLimits;
use super::lost_leases::LostLeases;
use super::open_session::OpenSession;
use super::requests::check_session_id;
use super::views::{LIST_PAGE, title};
use crate::authorize::Principal;

/// The number of sessions that are kept open. Others are opened on request, except those that have
/// an active run or a recent idempotency key.
const MAX_OPEN_SESSIONS: usize = 256;

/// How long a count of the store's sessions is reused.
const COUNT_LIFETIME: Duration = Duration::from_mins(1);

/// The number of sessions that are read at once from the list of a store in which principals have
/// sessions of their own.
const SCAN_PAGE: usize = 500;

/// The number of titles that are remembered.
const MAX_TITLES: usize = 10_000;

/// The store, and this process's state for its sessions. Clones share their sessions.
#[derive(Clone)]
pub(super) struct OpenSessions {
    pub(super) store: Arc<dyn Store>,
    pub(super) writers: StoreWriters,
    pub(super) owners: SessionOwners,
    pub(super) lost_leases: Arc<LostLeases>,
    open: Arc<Mutex<HashMap<String, Arc<OpenSession>>>>,
    counts: Arc<Mutex<Option<SessionCounts>>>,
    /// The titles of sessions that were listed.
    titles: Arc<Mutex<HashMap<String, String>>>,
}

/// Which processes write to the store.
#[derive(Clone, Copy)]
pub(super) enum StoreWriters {
    ThisProcess,
    Several,
}

/// Who may use a session.
#[derive(Clone, Copy)]
pub(super) enum SessionOwners {
    /// The principal whose id precedes the session's in the store.
    Principal,
    Everyone,
}

/// The number of sessions in the store when they were counted, plus those created here since.
struct SessionCounts {
    of_principal: HashMap<String, usize>,
    of_all: usize,
    at: Instant,
}

impl OpenSessions {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            writers: StoreWriters::ThisProcess,
            owners: SessionOwners::Principal,
            lost_leases: Arc::default(),
            open: Arc::default(),
            counts: Arc::default(),
            titles: Arc::default(),
        }
    }

    /// Returns the id under which the store has a session of the principal.
    pub(super) fn stored_id(&self, principal: &Principal, id: &str) -> Result<String, Failure> {
        check_session_id(id)?;
        Ok(match self.owners {
            // The id of a session contains no slash, so no two principals share a stored id.
            SessionOwners::Principal => format!("{}/{id}", principal.id()),
            SessionOwners::Everyone => id.to_owned(),
        })
    }

    /// Returns the id that clients use for a stored session, if it is the principal's.
    pub(super) fn public_id<'a>(&self, principal: &Principal, stored: &'a str) -> Option<&'a str> {
        match self.owners {
            SessionOwners::Principal => {
                let (owner, id) = stored.rsplit_once('/')?;
                (owner == principal.id()).then_some(id)
            }
            SessionOwners::Everyone => Some(stored),
        }
    }

    /// Returns the session with this stored id, which may be a new one.
    pub(super) async fn open(&self, hub: &Hub, stored: &str) -> Result<Arc<OpenSession>, Error> {
        let known = self.lock_open().get(stored).cloned();
        if let Some(open) = known {
            self.refresh(&open.session).await?;
            return Ok(open);
        }
        let session = Session::open(Arc::clone(&self.store), stored).await?;
        let mut sessions = self.lock_open();
        if sessions.len() >= MAX_OPEN_SESSIONS {
            sessions.retain(|id, open| {
                Arc::strong_count(open) > 1 || hub.run_id(id).is_some() || !open.has_no_keys()
            });
        }
        let open = sessions.entry(stored.to_owned());
        Ok(Arc::clone(open.or_insert_with(|| Arc::new(OpenSession::new(session)))))
    }

    /// Reads what other processes have written to the session.
    pub(super) async fn refresh(&self, session: &Session) -> Result<(), Error> {
        match self.writers {
            StoreWriters::ThisProcess => Ok(()),
            StoreWriters::Several => session.reload().await,
        }
    }

    /// Counts a new session, and refuses it if there are too many. The store's sessions are counted
    /// once a minute.
    pub(super) async fn add_session(
        &self,
        principal: &Principal,
        limits: &ChatLimits,
    ) -> Result<(), Failure> {
        let is_known = |counts: &SessionCounts| counts.at.elapsed() < COUNT_LIFETIME;
        if !self.lock_counts().as_ref().is_some_and(is_known) {
            let counts = self.count(limits.max_sessions).await;
            *self.lock_counts() = Some(counts);
        }
        let mut counts = self.lock_counts();
        // It was set above, and is never removed.
        let Some(counts) = counts.as_mut() else { return Ok(()) };
        let own = counts.of_principal.get(principal.id()).copied().unwrap_or_default();
        let max_own = match self.owners {
            SessionOwners::Principal => limits.max_sessions_per_principal,
            SessionOwners::Everyone => usize::MAX,
        };
        if own >= max_own || counts.of_all >= limits.max_sessions {
            return Err(Failure::too_many("there are too many sessions"));
        }
        counts.of_principal.insert(principal.id().to_owned(), own + 1);
        counts.of_all += 1;
        Ok(())
    }

    async fn count(&self, max: usize) -> SessionCounts {
        // A new conversation does not need the list.
        let sessions = self.store.list_page(None, max).await.unwrap_or_default();
        let mut of_principal = HashMap::new();
        for (owner, _) in sessions.iter().filter_map(|info| info.id.rsplit_once('/')) {
            match of_principal.get_mut(owner) {
                Some(count) => *count += 1,
                None => drop(of_principal.insert(owner.to_owned(), 1)),
            }
        }
        SessionCounts { of_principal, of_all: sessions.len(), at: Instant::now() }
    }

    /// Lists the principal's sessions after a position, with the ids that clients use. Also returns
    /// their titles.
    pub(super) async fn list(
        &self,
        principal: &Principal,
        after: Option<SessionInfo>,
    ) -> Result<Vec<(SessionInfo, String)>, Failure> {
        let mut after = match after {
            Some(after) => Some(SessionInfo { id: self.stored_id(principal, &after.id)?, ..after }),
            None => None,
        };
        let scanned = match self.owners {
            SessionOwners::Principal => SCAN_PAGE,
            SessionOwners::Everyone => LIST_PAGE,
        };
        let mut listed = Vec::new();
        loop {
            let page = self.store.list_page(after.as_ref(), scanned).await?;
            for info in &page {
                let Some(id) = self.public_id(principal, &info.id) else { continue };
                let title = self.title(info).await;
                let mut info = SessionInfo { id: id.to_owned(), ..info.clone() };
                if let Some(origin) = &mut info.origin
                    && let Some(id) = self.public_id(principal, &origin.id)
                {
                    origin.id = id.to_owned();
                }
                listed.push((info, title));
                if listed.len() == LIST_PAGE {
                    return Ok(listed);
                }
            }
            if page.len() < scanned {
                return Ok(listed);
            }
            after = page.into_iter().last();
        }
    }

    /// The beginning of the user's first message, which does not change.
    async fn title(&self, info: &SessionInfo) -> String {
        let titles = || self.titles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(title) = titles().get(&info.id) {
            return title.clone();
        }
        let entries = self.store.load(&info.id, 0).await.ok().flatten();
        let Some(title) = title(&entries.unwrap_or_default()) else { return String::new() };
        let mut titles = titles();
        if titles.len() >= MAX_TITLES {
            titles.clear();
        }
        titles.insert(info.id.clone(), title.clone());
        title
    }

    fn lock_counts(&self) -> MutexGuard<'_, Option<SessionCounts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_open(&self) -> MutexGuard<'_, HashMap<String, Arc<OpenSession>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
