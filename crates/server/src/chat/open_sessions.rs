//! The sessions of all principals.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use turnstream::Error;
use turnstream::hub::Hub;
use turnstream::session::{ForkOrigin, Session, SessionInfo, Store};

use super::failure::Failure;
use super::limits::ChatLimits;
use super::listings::Listings;
use super::lost_leases::LostLeases;
use super::open_session::OpenSession;
use super::requests::check_session_id;
use super::views::{KnownTitle, LIST_PAGE};
use crate::authorize::Principal;

/// The number of sessions that stay open. If there are more, new sessions without a message are
/// closed first, then those that were not used for the longest time, but none that has an active
/// run, a reader, a recent idempotency key, or verdicts while others are missing.
const MAX_OPEN_SESSIONS: usize = 256;

/// How long a count of the store's sessions is reused.
const COUNT_LIFETIME: Duration = Duration::from_mins(1);

/// The number of titles that are remembered.
const MAX_TITLES: usize = 10_000;

/// The store, and this process's state for its sessions. Clones share their sessions.
#[derive(Clone)]
pub(super) struct OpenSessions {
    pub(super) store: Arc<dyn Store>,
    pub(super) writers: StoreWriters,
    pub(super) owners: SessionOwners,
    /// Whether the histories of sub-agents are stored.
    pub(super) keeps_sub_agents: bool,
    pub(super) lost_leases: Arc<LostLeases>,
    open: Arc<Mutex<OpenedSessions>>,
    /// Locked while the sessions are counted.
    counts: Arc<tokio::sync::Mutex<Option<SessionCounts>>>,
    listings: Listings,
    /// The titles of sessions that were listed.
    titles: Arc<Mutex<HashMap<String, KnownTitle>>>,
}

/// The sessions that stay open.
#[derive(Default)]
struct OpenedSessions {
    sessions: HashMap<String, OpenedSession>,
    /// The number of times that a session was used.
    uses: u64,
}

struct OpenedSession {
    open: Arc<OpenSession>,
    last_use: u64,
}

impl OpenedSessions {
    fn get(&mut self, stored: &str) -> Option<Arc<OpenSession>> {
        let opened = self.sessions.get_mut(stored)?;
        self.uses += 1;
        opened.last_use = self.uses;
        Some(Arc::clone(&opened.open))
    }

    fn add(&mut self, hub: &Hub, stored: &str, session: Session) -> Arc<OpenSession> {
        if let Some(open) = self.get(stored) {
            return open;
        }
        if self.sessions.len() >= MAX_OPEN_SESSIONS {
            self.close_one(hub);
        }
        let open = Arc::new(OpenSession::new(session));
        self.uses += 1;
        let opened = OpenedSession { open: Arc::clone(&open), last_use: self.uses };
        self.sessions.insert(stored.to_owned(), opened);
        open
    }

    /// Closes the session that is needed least, if any may be closed.
    fn close_one(&mut self, hub: &Hub) {
        let is_unused = |id: &str, opened: &OpenedSession| {
            Arc::strong_count(&opened.open) == 1
                && hub.run_id(id).is_none()
                && opened.open.may_close()
        };
        let unused = self.sessions.iter().filter(|(id, opened)| is_unused(id, opened));
        let order = |(_, opened): &(&String, &OpenedSession)| {
            (opened.open.session.version() > 0, opened.last_use)
        };
        if let Some(id) = unused.min_by_key(order).map(|(id, _)| id.clone()) {
            self.sessions.remove(&id);
        }
    }
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
            keeps_sub_agents: false,
            lost_leases: Arc::default(),
            open: Arc::default(),
            counts: Arc::default(),
            listings: Listings::default(),
            titles: Arc::default(),
        }
    }

    /// Returns the sessions of another store, with the same settings.
    pub(super) fn with_store(&self, store: Arc<dyn Store>) -> Self {
        Self {
            writers: self.writers,
            owners: self.owners,
            keeps_sub_agents: self.keeps_sub_agents,
            ..Self::new(store)
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
        let known = self.lock_open().get(stored);
        if let Some(open) = known {
            self.refresh(&open.session).await?;
            return Ok(open);
        }
        let mut session = Session::open(Arc::clone(&self.store), stored).await?;
        if self.keeps_sub_agents {
            session = session.with_sub_agent_histories();
        }
        Ok(self.lock_open().add(hub, stored, session))
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
        let mut counts = self.counts.lock().await;
        let known = counts.take_if(|counts| counts.at.elapsed() < COUNT_LIFETIME);
        let mut counted = match known {
            Some(counts) => counts,
            None => self.count(limits.max_sessions).await?,
        };
        let own = counted.of_principal.get(principal.id()).copied().unwrap_or_default();
        let max_own = match self.owners {
            SessionOwners::Principal => limits.max_sessions_per_principal,
            SessionOwners::Everyone => usize::MAX,
        };
        let is_full = own >= max_own || counted.of_all >= limits.max_sessions;
        if !is_full {
            counted.of_principal.insert(principal.id().to_owned(), own + 1);
            counted.of_all += 1;
        }
        *counts = Some(counted);
        match is_full {
            true => Err(Failure::too_many("there are too many sessions")),
            false => Ok(()),
        }
    }

    /// Takes back a session that was counted, but not created.
    pub(super) async fn remove_session(&self, principal: &Principal) {
        if let Some(counts) = &mut *self.counts.lock().await {
            counts.of_all = counts.of_all.saturating_sub(1);
            if let Some(own) = counts.of_principal.get_mut(principal.id()) {
                *own = own.saturating_sub(1);
            }
        }
    }

    async fn count(&self, max: usize) -> Result<SessionCounts, Error> {
        let sessions = self.store.list_page(None, max).await?;
        let mut of_principal = HashMap::new();
        for (owner, _) in sessions.iter().filter_map(|info| info.id.rsplit_once('/')) {
            match of_principal.get_mut(owner) {
                Some(count) => *count += 1,
                None => drop(of_principal.insert(owner.to_owned(), 1)),
            }
        }
        Ok(SessionCounts { of_principal, of_all: sessions.len(), at: Instant::now() })
    }

    /// Lists the principal's sessions after a position, with the ids that clients use. Also returns
    /// their titles.
    pub(super) async fn list(
        &self,
        principal: &Principal,
        after: Option<SessionInfo>,
    ) -> Result<Vec<(SessionInfo, String)>, Failure> {
        let after = match after {
            Some(after) => Some(SessionInfo { id: self.stored_id(principal, &after.id)?, ..after }),
            None => None,
        };
        let mut listed = Vec::new();
        for info in self.list_own(principal, after).await? {
            let Some(id) = self.public_id(principal, &info.id) else { continue };
            let title = self.title(&info).await;
            let origin = info.origin.as_ref().and_then(|origin| {
                let id = self.public_id(principal, &origin.id)?.to_owned();
                Some(ForkOrigin { id, ..origin.clone() })
            });
            listed.push((SessionInfo { id: id.to_owned(), origin, ..info.clone() }, title));
        }
        Ok(listed)
    }

    /// Lists one page of the principal's sessions after a position. A store has no list of the
    /// sessions of one principal, so the whole list is read.
    async fn list_own(
        &self,
        principal: &Principal,
        after: Option<SessionInfo>,
    ) -> Result<Vec<SessionInfo>, Failure> {
        if let SessionOwners::Everyone = self.owners {
            return Ok(self.store.list_page(after.as_ref(), LIST_PAGE).await?);
        }
        let is_later =
            |info: &SessionInfo| after.as_ref().is_none_or(|it| info.list_order(it).is_gt());
        let is_own = |info: &SessionInfo| self.public_id(principal, &info.id).is_some();
        let read = async {
            let listed = self.store.list().await?.into_iter();
            Ok(listed.filter(|info| is_own(info) && is_later(info)).take(LIST_PAGE).collect())
        };
        self.listings.read(principal, read).await
    }

    /// The beginning of the user's first message.
    async fn title(&self, info: &SessionInfo) -> String {
        let known = self.lock_titles().get(&info.id).cloned();
        let found = KnownTitle::load(&*self.store, info, known).await;
        let Some(found) = found else { return String::new() };
        let text = found.text.clone();
        let mut titles = self.lock_titles();
        if titles.len() >= MAX_TITLES {
            titles.clear();
        }
        titles.insert(info.id.clone(), found);
        text
    }

    fn lock_titles(&self) -> MutexGuard<'_, HashMap<String, KnownTitle>> {
        self.titles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_open(&self) -> MutexGuard<'_, OpenedSessions> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
