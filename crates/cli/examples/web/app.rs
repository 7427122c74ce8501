//! The state that all requests share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use turnstream::hub::Hub;
use turnstream::session::{JsonLinesStore, MemoryStore, Session, Store};
use turnstream::{Agent, Error, ErrorKind};

use crate::access::Access;
use crate::agent::{self, AboutModel};
use crate::cluster;
use crate::failure::Failure;
use crate::flags::{Busy, Flags};
use crate::requests::check_session_id;
use crate::session::is_sqlite;
use crate::starts::{OpenSession, StartRate};

/// The maximum number of pages that read events at once.
const MAX_READERS: usize = 512;

/// The number of sessions that are kept open. Others are opened on request, except those that have
/// an active run or a recent idempotency key.
const MAX_OPEN_SESSIONS: usize = 256;

/// New sessions are refused when the store has this many.
const MAX_SESSIONS: usize = 100_000;

/// How long a count of the store's sessions is reused.
const COUNT_LIFETIME: Duration = Duration::from_mins(1);

/// The number of sessions in the store when it was counted, plus those created here since.
struct SessionCount {
    sessions: usize,
    at: Instant,
}

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) hub: Hub,
    pub(crate) agent: Agent,
    pub(crate) about: AboutModel,
    pub(crate) access: Access,
    pub(crate) busy: Busy,
    pub(crate) starts: StartRate,
    /// One permit for each page that reads events.
    pub(crate) readers: Arc<Semaphore>,
    pub(crate) store: Arc<dyn Store>,
    /// Whether other processes write to the store.
    is_shared: bool,
    /// Notified when all runs have ended at shutdown.
    pub(crate) stopped: Notify,
    sessions: Mutex<HashMap<String, Arc<OpenSession>>>,
    session_count: Mutex<Option<SessionCount>>,
    /// Receives the ids of sessions whose runs have lost their lease.
    lost: UnboundedSender<String>,
    /// The titles of sessions that were listed.
    pub(crate) titles: Mutex<HashMap<String, String>>,
}

impl App {
    pub(crate) async fn open(
        flags: &Flags,
        address: SocketAddr,
        lost: UnboundedSender<String>,
    ) -> Result<Arc<Self>, Error> {
        let (model, about) = agent::choose_model(flags).await?;
        let agent = agent::build(flags, model, &about)?;
        Ok(Arc::new(Self {
            hub: cluster::configure_hub(flags.events.as_deref())
                .await?
                .with_ended_kept_for(flags.keep_events)
                .build(),
            agent,
            about,
            access: Access::new(flags, address)?,
            busy: flags.busy,
            starts: StartRate::default(),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            store: match &flags.store {
                Some(url) => cluster::open_store(url).await?,
                None => open_store(flags.session_path.as_deref())?,
            },
            is_shared: flags.store.is_some(),
            stopped: Notify::new(),
            sessions: Mutex::default(),
            lost,
            session_count: Mutex::default(),
            titles: Mutex::default(),
        }))
    }

    /// Reads what other processes have written to the session.
    pub(crate) async fn refresh(&self, session: &Session) -> Result<(), Error> {
        if self.is_shared { session.reload().await } else { Ok(()) }
    }

    /// Returns the session with this id, which may be a new one.
    pub(crate) async fn session(&self, id: &str) -> Result<Arc<OpenSession>, Failure> {
        check_session_id(id)?;
        let known = self.open_sessions().get(id).cloned();
        if let Some(open) = known {
            self.refresh(&open.session).await?;
            return Ok(open);
        }
        let session = Session::open(Arc::clone(&self.store), id).await?;
        let mut sessions = self.open_sessions();
        if sessions.len() >= MAX_OPEN_SESSIONS {
            sessions.retain(|id, open| {
                Arc::strong_count(open) > 1 || self.hub.run_id(id).is_some() || !open.has_no_keys()
            });
        }
        let open = sessions.entry(id.to_owned());
        Ok(Arc::clone(
            open.or_insert_with(|| Arc::new(OpenSession::new(session, self.lost.clone()))),
        ))
    }

    /// Refuses a new session if there are too many. Sessions are counted once a minute.
    pub(crate) async fn check_session_count(&self, session: &Session) -> Result<(), Failure> {
        if session.version() > 0 {
            return Ok(());
        }
        let is_known = |count: &SessionCount| count.at.elapsed() < COUNT_LIFETIME;
        if !self.session_count().as_ref().is_some_and(is_known) {
            // A new conversation does not need the list.
            let sessions = self.store.list_page(None, MAX_SESSIONS).await;
            let sessions = sessions.map_or(0, |page| page.len());
            *self.session_count() = Some(SessionCount { sessions, at: Instant::now() });
        }
        match &mut *self.session_count() {
            Some(count) if count.sessions < MAX_SESSIONS => {
                count.sessions += 1;
                Ok(())
            }
            _ => Err(Failure::too_many("there are too many sessions")),
        }
    }

    fn session_count(&self) -> MutexGuard<'_, Option<SessionCount>> {
        self.session_count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<OpenSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_store(path: Option<&str>) -> Result<Arc<dyn Store>, Error> {
    let Some(path) = path else { return Ok(Arc::new(MemoryStore::new())) };
    #[cfg(feature = "sqlite")]
    if is_sqlite(path) {
        return Ok(Arc::new(turnstream_sqlite::SqliteStore::open(path)?));
    }
    if !is_sqlite(path) && Path::new(path).is_file() {
        let message = format!("`{path}` is a file; a folder is needed for several sessions");
        return Err(Error::new(ErrorKind::Store, message));
    }
    Ok(Arc::new(JsonLinesStore::open(path)?))
}
