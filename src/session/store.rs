//! The trait for session stores.

use std::cmp::Ordering;
use std::time::SystemTime;

use futures::future::{BoxFuture, FutureExt, ready};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::session::{Entry, Lease};

/// A store for sessions.
///
/// A session is identified by an id, which is any non-empty text. The entries of a session are
/// numbered from 0, and its version is the number of entries. Two appends to a session never
/// interleave, because each append names the version that it follows. If two appends name the same
/// version, one append is written completely, and the other append fails with a [`Conflict`].
///
/// In a durable store, entries survive a crash of the process once their append has returned. If
/// the future of an append is dropped, the append may or may not be written, but never partially.
/// Call [`load`](Self::load) to determine whether such an append was written.
///
/// With the feature `testing`, `session::suite` tests a store against this contract.
pub trait Store: Send + Sync {
    /// Appends entries after the `expected` existing entries, and returns the new version. A
    /// session that does not exist has version 0, and its first append creates the session. An
    /// append without entries writes nothing.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with a [`Conflict`] as its source, if the session has
    /// another version, and [`Store`](ErrorKind::Store) if the entries cannot be written. After an
    /// error, nothing was written, unless the error message of a remote store says that this is
    /// unknown.
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>>;

    /// Appends entries like [`append`](Self::append), but under a lease. The append fails if
    /// another lease of the session was acquired in the meantime. The check and the write are one
    /// atomic step, so every append that succeeds was written before the next lease was acquired.
    ///
    /// The default implementation ignores the lease and calls [`append`](Self::append).
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with a [`LeaseLost`](crate::session::LeaseLost) as its
    /// source, if the lease is lost; nothing was written in this case. All errors of
    /// [`append`](Self::append) are also possible.
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

    /// Takes the [lease](Lease) of a session, which need not exist yet. This method does not wait
    /// while another run holds the lease. The lease ends when its last clone is dropped, or when
    /// the process or machine that took the lease ends.
    ///
    /// If the future is dropped, the lease may or may not have been taken. A lease that was taken
    /// is released again.
    ///
    /// The default implementation returns leases that [do not exclude other
    /// runs](Lease::unguarded).
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with an [`AlreadyLeased`](crate::session::AlreadyLeased)
    /// as its source, if another run holds the lease. [`InvalidRequest`](ErrorKind::InvalidRequest)
    /// if the id is empty, and [`Store`](ErrorKind::Store) if the store fails.
    fn lease<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Lease, Error>> {
        let _ = id;
        ready(Ok(Lease::unguarded())).boxed()
    }

    /// Returns the entries from number `from` on, including inherited entries. Returns `None` if
    /// the session does not exist.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the entries cannot be read.
    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>>;

    /// Lists all sessions, the most recently written first.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the sessions cannot be read.
    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>>;

    /// Returns a page of the session [list](Self::list) with at most `limit` sessions. The page
    /// starts after the session `after`, or with the first session if `after` is `None`. A session
    /// that is written between two pages moves to the front of the list, so later pages do not
    /// contain it.
    ///
    /// The default implementation reads the whole list.
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
    /// Returns the errors of [`list`](Self::list).
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

    /// Creates the session `new` from the first `at` entries of another session. No entry is
    /// copied, and later appends to either session do not affect the other session.
    /// [`list`](Self::list) reports the origin of a fork. A [`Session`](crate::session::Session)
    /// uses the origin to find open calls that belong to the original session.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict) if the session `new` exists.
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if the session `id` does not exist or has
    /// fewer than `at` entries. [`Store`](ErrorKind::Store) if the fork cannot be written.
    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    /// Deletes a session with all its entries. Returns whether the session existed.
    ///
    /// After a deletion, the next append of a process that has the session open fails with a
    /// [`Conflict`]. The id of the deleted session can be used again. This method does not take a
    /// lease, so an active run of the session ends with that conflict. Unreadable sessions can also
    /// be deleted. If the future is dropped, the session may or may not be deleted.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if another session was forked from the
    /// session, because the fork would lose its first entries. [`Store`](ErrorKind::Store) if the
    /// session cannot be deleted. [`Unsupported`](ErrorKind::Unsupported) if the store does not
    /// support deletion, as in the default implementation.
    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        let _ = id;
        ready(Err(removal_unsupported_error())).boxed()
    }

    /// Deletes the sessions that were last written before a point in time, by the store's clock.
    /// Returns the ids of the deleted sessions, in the order in which they were deleted.
    ///
    /// A session is kept while a fork of the session is kept, if the session is written in the
    /// meantime, or if it cannot be read. Leases are ignored, so a run that has written nothing
    /// after the given time loses its session. Each session is deleted as by
    /// [`delete`](Self::delete). If the future is dropped, some of the sessions may be deleted.
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
    /// [`Store`](ErrorKind::Store) if a session cannot be deleted, and
    /// [`Unsupported`](ErrorKind::Unsupported) as for [`delete`](Self::delete).
    fn prune(&self, before: SystemTime) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        let _ = before;
        ready(Err(removal_unsupported_error())).boxed()
    }
}

fn removal_unsupported_error() -> Error {
    Error::new(ErrorKind::Unsupported, "this store does not remove sessions")
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

/// An entry in a store's list of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The id of the session.
    pub id: String,
    /// The number of entries of the session, including inherited entries.
    pub version: u64,
    /// The original session and the version at which this session was forked. `None` if the session
    /// is not a fork.
    pub origin: Option<ForkOrigin>,
    /// The time of the last write, with millisecond precision or better. Sessions are listed and
    /// pruned by this time.
    pub updated_at: SystemTime,
}

impl SessionInfo {
    /// Compares two sessions by the order of the list, which starts with the most recently written
    /// session.
    pub(super) fn list_order(&self, other: &Self) -> Ordering {
        other.updated_at.cmp(&self.updated_at).then_with(|| self.id.cmp(&other.id))
    }
}

/// The origin of a forked session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ForkOrigin {
    /// The id of the original session.
    pub id: String,
    /// The number of entries that the fork inherits.
    pub at: u64,
}

/// The source of an error of kind [`Conflict`](ErrorKind::Conflict) which means that another writer
/// has appended to the session.
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
    /// The id of the session.
    pub id: String,
    /// The version that the append expected to follow.
    pub expected: u64,
    /// The version that the session has in the store.
    pub found: u64,
}

impl Conflict {
    /// Looks up a `Conflict` in the error's source chain.
    pub fn from_error(error: &Error) -> Option<&Self> {
        error.find_source()
    }
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Self {
        Self::new(ErrorKind::Conflict, conflict.to_string()).with_source(conflict)
    }
}
