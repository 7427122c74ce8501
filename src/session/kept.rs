//! A session, as a program holds it.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::Error;
use crate::item::History;
use crate::session::refusal::refuse_empty;
use crate::session::restore::Restored;
use crate::session::{Entry, SessionState, Store};

/// A conversation that is kept in a store as it goes on. Clones share it.
///
/// What it shows is what is durable. [`run`](Self::run) goes on with it, and
/// [`resume`](Self::resume) with what was broken off; `recorded`, of
/// [`RecordedExt`](crate::session::RecordedExt), writes the events of a loop of your own.
///
/// Its history has the session's id, so that tools know their calls by `{session id}/{call id}`, also
/// after a restart.
///
/// Only one run at a time can write: of two, here or in two processes, the one whose append comes
/// second ends with an error of kind [`Conflict`](crate::ErrorKind::Conflict).
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
    cell: Arc<Mutex<Cell>>,
}

/// What is known of the entries in the store.
struct Cell {
    /// How many were read or written.
    version: u64,
    restored: Restored,
    /// There may be more: an append failed, or nobody waited for it.
    stale: bool,
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
        refuse_empty(&id)?;
        let session = Self::at(Arc::new(store), Restored::new(id), 0);
        session.load().await?;
        Ok(session)
    }

    pub(super) fn at(store: Arc<dyn Store>, restored: Restored, version: u64) -> Self {
        let id = restored.history().id().into();
        let cell = Cell { version, restored, stale: false };
        Self { store, id, cell: Arc::new(Mutex::new(cell)) }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What was said, as far as it is durable: a turn that streams is not in it, and of the calls
    /// of a turn those results that have come. It can be sent after [`History::settled`].
    pub fn history(&self) -> History {
        self.cell().restored.history()
    }

    /// How many entries are known to be in the store.
    pub fn version(&self) -> u64 {
        self.cell().version
    }

    /// What it is waiting for. While a run goes on, that is what would be left if it were dropped.
    pub fn state(&self) -> SessionState {
        self.cell().restored.state()
    }

    /// Reads what somebody else has written.
    ///
    /// A run does this by itself if an append has failed, or was dropped, since.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if it cannot be read.
    pub async fn refresh(&self) -> Result<(), Error> {
        self.load().await
    }

    /// All entries, those that were folded away included.
    ///
    /// # Errors
    ///
    /// [`Store`](crate::ErrorKind::Store) if they cannot be read.
    pub async fn entries(&self) -> Result<Vec<Entry>, Error> {
        Ok(self.store.load(&self.id, 0).await?.unwrap_or_default())
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The version, and what its entries make of the history. What is not known is read first.
    pub(super) async fn current(&self) -> Result<(u64, Restored), Error> {
        if self.cell().stale {
            self.load().await?;
        }
        Ok(self.known())
    }

    /// The same as far as it is known.
    pub(super) fn known(&self) -> (u64, Restored) {
        let cell = self.cell();
        (cell.version, cell.restored.clone())
    }

    async fn load(&self) -> Result<(), Error> {
        let (from, mut restored) = self.known();
        let entries = self.store.load(&self.id, from).await?.unwrap_or_default();
        let version = from + entries.len() as u64;
        restored.extend(entries);
        let mut cell = self.cell();
        // Somebody may have written meanwhile.
        if cell.version <= version {
            *cell = Cell { version, restored, stale: false };
        }
        Ok(())
    }

    /// Writes entries behind the `expected` ones, which make `restored` of the history. If nobody
    /// waits for the end of it, it is not known whether they are there.
    pub(super) fn append(
        &self,
        expected: u64,
        entries: Vec<Entry>,
        restored: Restored,
    ) -> BoxFuture<'static, Result<u64, Error>> {
        let session = self.clone();
        async move {
            let doubt = Doubt(Some(&session));
            let written = session.store.append(&session.id, expected, entries);
            let written = AssertUnwindSafe(written).catch_unwind().await;
            let version =
                written.unwrap_or_else(|payload| Err(Error::panic("the store", &*payload)))?;
            doubt.resolve();
            let mut cell = session.cell();
            if cell.version <= version {
                *cell = Cell { version, restored, stale: false };
            }
            drop(cell);
            Ok(version)
        }
        .boxed()
    }

    fn cell(&self) -> MutexGuard<'_, Cell> {
        // Nothing of a user runs while it is held.
        self.cell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it is there, nobody knows what the store has.
struct Doubt<'a>(Option<&'a Session>);

impl Doubt<'_> {
    fn resolve(mut self) {
        self.0 = None;
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.cell().stale = true;
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}
