//! Where sessions are kept.

use std::cmp::Ordering;
use std::time::SystemTime;

use futures::future::{BoxFuture, FutureExt, ready};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::session::{Entry, Lease};

/// Where sessions are kept.
///
/// A session is named by an id, any text that is not empty. Its entries are numbered from 0, and its
/// version is how many there are. Two appends to one session never interleave: each names the version
/// that it follows, and of two that name the same one is written, whole, and the other gets a
/// [`Conflict`].
///
/// What a store says is written is there after the process was killed, if the store is durable.
/// Dropping a future that waits for an append leaves open whether it is written; it is written whole
/// or not at all. [`load`](Self::load) tells.
///
/// With the feature `testing`, `session::suite` tests a store against all of this.
pub trait Store: Send + Sync {
    /// Writes entries behind the `expected` ones that are there, and gives the version afterwards. A
    /// session that is not there has version 0 and is made by its first entry; an append of no entries
    /// writes nothing.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with a [`Conflict`] as its source, if the session has
    /// another version, and [`Store`](ErrorKind::Store) if the entries cannot be written. Nothing
    /// is written then, unless the message of a store on another machine says that this is not known.
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>>;

    /// [`append`](Self::append) under a lease: it is refused if another one was taken since. The check and
    /// the write are one step, so an append that is written was written before the next lease was taken.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with a [`LeaseLost`](crate::session::LeaseLost) as its source, if the lease
    /// is lost; else as [`append`](Self::append). Nothing is written then. A store that does not implement this
    /// ignores the lease and calls [`append`](Self::append).
    fn append_leased<'a>(
        &'a self,
        lease: &'a Lease,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        let _ = lease;
        self.append(id, expected, entries)
    }

    /// Takes the [lease](Lease) of a session, which may be one that is not there yet. It does not wait for
    /// another owner. The lease ends when its last clone is dropped, and with the process or the machine that has taken it.
    ///
    /// Dropping the future leaves open whether it was taken; if so, it is given back.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with an [`AlreadyLeased`](crate::session::AlreadyLeased) as its source, if
    /// another run has it, [`InvalidRequest`](ErrorKind::InvalidRequest) if the id is empty, and
    /// [`Store`](ErrorKind::Store) if the store fails. A store that does not implement this gives leases that
    /// [exclude no other run](Lease::unguarded).
    fn lease<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Lease, Error>> {
        let _ = id;
        ready(Ok(Lease::unguarded())).boxed()
    }

    /// The entries from number `from` on, inherited ones included; `None` if there is no such session.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if they cannot be read.
    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>>;

    /// All sessions, the one that was written last first.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if they cannot be read.
    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>>;

    /// A page of [`list`](Self::list): at most `limit` sessions, those that follow the session `after`, or the first
    /// ones. A session that is written while you page moves to the front, so later pages do not contain it.
    ///
    /// ```
    /// use turnstream::Item;
    /// use turnstream::session::{MemoryStore, Store};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let store = MemoryStore::new();
    /// for id in ["a", "b", "c"] {
    ///     store.append(id, 0, vec![Item::user("Hi").into()]).await?;
    /// }
    /// let page = store.list_page(None, 2).await?;
    /// let next = store.list_page(page.last(), 2).await?;
    /// assert_eq!((page.len(), next.len()), (2, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list). A store that does not implement this reads the whole list.
    fn list_page<'a>(
        &'a self,
        after: Option<&'a SessionInfo>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionInfo>, Error>> {
        let page = move |mut listed: Vec<SessionInfo>| {
            if let Some(after) = after {
                listed.retain(|info| info.list_order(after).is_gt());
            }
            listed.truncate(limit);
            listed
        };
        self.list().map(move |listed| listed.map(page)).boxed()
    }

    /// Makes the session `new` of the first `at` entries of another. No entry is copied, and what
    /// either of them says afterwards is its own. [`list`](Self::list) tells where it came from: by
    /// that a [`Session`](crate::session::Session) knows which open calls are not its own.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict) if `new` is there, [`InvalidRequest`](ErrorKind::InvalidRequest)
    /// if `id` is not or has fewer entries, [`Store`](ErrorKind::Store) if it cannot be written.
    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    /// Removes a session with all its entries. Returns whether it was there.
    ///
    /// Those who have it open find out with their next append, which gets a [`Conflict`]; its id is free
    /// afterwards. It takes no lease: a run of the session ends with that conflict. A session that cannot be read can be removed as well. Dropping the future leaves open
    /// whether it is removed.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if another session was forked from it, which would
    /// lose its first entries, [`Store`](ErrorKind::Store) if it cannot be removed, and
    /// [`Unsupported`](ErrorKind::Unsupported) if the store removes nothing, which is what a store does
    /// that does not implement this.
    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        let _ = id;
        ready(Err(removal_unsupported_error())).boxed()
    }

    /// Removes the sessions whose last write was before a time, by the store's clock. Returns their ids,
    /// in the order in which they were removed.
    ///
    /// A session stays as long as a session that stays was forked from it, and so does one that is
    /// written meanwhile or cannot be read. Leases are ignored: a run that has written nothing since then loses
    /// its session. Each is removed as by [`delete`](Self::delete); dropping the
    /// future leaves open which are.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use turnstream::session::{MemoryStore, Store};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let store = MemoryStore::new();
    /// let month = Duration::from_hours(30 * 24);
    /// let removed = store.prune(SystemTime::now() - month).await?;
    /// assert!(removed.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if one cannot be removed, and
    /// [`Unsupported`](ErrorKind::Unsupported) as [`delete`](Self::delete).
    fn prune(&self, before: SystemTime) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        let _ = before;
        ready(Err(removal_unsupported_error())).boxed()
    }
}

fn removal_unsupported_error() -> Error {
    Error::new(ErrorKind::Unsupported, "this store removes no sessions")
}

impl<T: Store + ?Sized> Store for std::sync::Arc<T> {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        (**self).append(id, expected, entries)
    }

    fn append_leased<'a>(
        &'a self,
        lease: &'a Lease,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        (**self).append_leased(lease, id, expected, entries)
    }

    fn lease<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Lease, Error>> {
        (**self).lease(id)
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        (**self).load(id, from)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
        (**self).list()
    }

    fn list_page<'a>(
        &'a self,
        after: Option<&'a SessionInfo>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionInfo>, Error>> {
        (**self).list_page(after, limit)
    }

    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        (**self).fork(id, at, new)
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        (**self).delete(id)
    }

    fn prune(&self, before: SystemTime) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        (**self).prune(before)
    }
}

/// A session as a store lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id.
    pub id: String,
    /// How many entries it has, inherited ones included.
    pub version: u64,
    /// What it was forked from.
    pub origin: Option<ForkOrigin>,
    /// When it was written last, to a millisecond or better: sessions are listed and pruned by it.
    pub updated_at: SystemTime,
}

impl SessionInfo {
    /// The order of a list: the one that was written last first.
    pub(super) fn list_order(&self, other: &Self) -> Ordering {
        other.updated_at.cmp(&self.updated_at).then_with(|| self.id.cmp(&other.id))
    }
}

/// Where a session came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ForkOrigin {
    /// The other session.
    pub id: String,
    /// How many of its entries were taken over.
    pub at: u64,
}

/// The source of an error of kind [`Conflict`](ErrorKind::Conflict): somebody else has written.
///
/// ```
/// use futures::executor::block_on;
/// use turnstream::session::{Conflict, Entry, MemoryStore, Store};
/// use turnstream::{ErrorKind, Item};
///
/// let store = MemoryStore::new();
/// let say = |text: &str| vec![Entry::from(Item::user(text))];
/// assert_eq!(block_on(store.append("s", 0, say("one")))?, 1);
///
/// let error = block_on(store.append("s", 0, say("two"))).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Conflict);
/// assert_eq!(Conflict::from_error(&error).unwrap().found, 1);
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session `{id}` has version {found}, not {expected}")]
pub struct Conflict {
    /// The session.
    pub id: String,
    /// The version that the write was to follow.
    pub expected: u64,
    /// The version that is there.
    pub found: u64,
}

impl Conflict {
    /// Finds the conflict that an error carries.
    pub fn from_error(error: &Error) -> Option<&Self> {
        error.find_source()
    }
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Self {
        Self::new(ErrorKind::Conflict, conflict.to_string()).with_source(conflict)
    }
}
