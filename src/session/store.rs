//! The trait for session stores.

use std::cmp::Ordering;
use std::time::SystemTime;

use futures::future::{BoxFuture, FutureExt, ready};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::session::{Entry, Lease};

/// A trait for storing sessions.
///
/// A session is identified by an id, which can be any non-empty string. The entries of a session
/// are numbered from 0, and the session's version is the number of its entries. Two appends to a
/// session never interleave, because each append states the version that it expects the session to
/// have. If two appends state the same version, one is written completely, and the other fails with
/// a [`Conflict`].
///
/// In a durable store, entries survive a process crash once the append that wrote the entries has
/// completed. If the future of an append is dropped, the append may or may not be written, but is
/// never written partially. To determine whether an append was written after its future was
/// dropped, call [`load`](Self::load).
///
/// `session_suite!` of the crate `turnstream-testing` checks whether a store fulfills this
/// contract.
pub trait Store: Send + Sync {
    /// Appends entries to a session that currently contains `expected` entries, and returns the new
    /// version. A session that does not exist has version 0, and the first append to a session
    /// creates it. An append without entries writes nothing.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with a [`Conflict`] as its source, if the session's
    /// version is not `expected`, and [`Store`](ErrorKind::Store) if the entries cannot be written.
    /// In these cases, nothing was written. [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if it is
    /// unknown whether the entries were written, for example because the connection to a remote
    /// store broke, or because a failed write to a file could not be undone. To find out, call
    /// [`load`](Self::load). Entries are never written partially.
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>>;

    /// Like [`append`](Self::append), but fails if another lease on the session has been acquired
    /// since `lease` was acquired. The check and the write are a single atomic step, so every
    /// successful append was written before the next lease was acquired.
    ///
    /// The default implementation ignores the lease and calls [`append`](Self::append).
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with a [`LeaseLost`](crate::session::LeaseLost) as its
    /// source, if the lease has been lost. In this case, nothing was written. This method can also
    /// return every error that [`append`](Self::append) returns.
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

    /// Acquires the [lease](Lease) on a session. The session need not exist yet. If another run
    /// holds the lease, this method fails without waiting. The lease ends when its last clone is
    /// dropped, when the process that acquired the lease ends, or when the machine running that
    /// process fails.
    ///
    /// If the returned future is dropped after the lease has been acquired, the lease is released.
    ///
    /// The default implementation returns leases that have epoch 0 and do not exclude other runs.
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

    /// Returns a session's entries from entry number `from` onward, including inherited entries.
    /// Returns `None` if the session does not exist.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the entries cannot be read.
    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>>;

    /// Lists all sessions, starting with the most recently modified session. A session that cannot
    /// be read is listed with its [error](SessionInfo::read_error), so that it does not hide the
    /// other sessions.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the list itself cannot be read.
    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>>;

    /// Returns one page of the [session list](Self::list), with at most `limit` sessions. The page
    /// starts after the session `after`, or at the start of the list if `after` is `None`. If a
    /// session is written to while a caller is still reading the pages of the list, the session
    /// moves to the front of the list and does not appear on later pages.
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
    /// Returns the errors that [`list`](Self::list) returns.
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

    /// Creates the session `new`, which starts with the first `at` entries of the session `id`. No
    /// entry is copied, and later appends to either session do not affect the other session.
    /// [`list`](Self::list) reports the origin of a fork. A [`Session`](crate::session::Session)
    /// uses the origin to find open calls that belong to the original session.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict) if the session `new` already exists.
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if the session `id` does not exist or contains
    /// fewer than `at` entries. [`Store`](ErrorKind::Store) if the fork cannot be written, and
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if it is unknown whether the fork was written.
    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>>;

    /// Deletes a session and all of its entries. Returns whether the session existed.
    ///
    /// If the session is open in another process, the next append by that process fails with a
    /// [`Conflict`]. The id of the deleted session can be reused. This method does not acquire a
    /// lease, so an active run of the session fails with a conflict at its next append. Unreadable
    /// sessions can also be deleted. If the future is dropped, the session may or may not be
    /// deleted.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if another session was forked from the session
    /// to delete, because the fork would lose its first entries. [`Store`](ErrorKind::Store) if the
    /// session cannot be deleted, and [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if it is
    /// unknown whether the session was deleted. [`Unsupported`](ErrorKind::Unsupported) if the
    /// store does not support deletion, as in the default implementation.
    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        let _ = id;
        ready(Err(removal_unsupported_error())).boxed()
    }

    /// Deletes all sessions that were last written to before the given time, according to the
    /// store's clock. Returns the ids of the deleted sessions in the order in which they were
    /// deleted.
    ///
    /// A session is kept if one of its forks is kept, if the session is written to during this
    /// call, or if the session cannot be read. Leases are ignored, so a session can be deleted
    /// during an active run if the run has not written anything since the given time. Each session
    /// is deleted as if by a call to [`delete`](Self::delete). If the future is dropped, some of
    /// the sessions may already be deleted.
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
    /// Returns the errors that [`delete`](Self::delete) returns, except for sessions that have
    /// forks. Some of the sessions may already be deleted.
    fn prune(&self, before: SystemTime) -> BoxFuture<'_, Result<Vec<String>, Error>> {
        let _ = before;
        ready(Err(removal_unsupported_error())).boxed()
    }
}

/// Creates the error of a store that does not delete sessions.
pub(super) fn removal_unsupported_error() -> Error {
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

/// An entry in a store's [session list](Store::list), without the content of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session's id.
    pub id: String,
    /// The number of entries in the session, including inherited entries.
    pub version: u64,
    /// The original session, and the number of entries inherited from the original session. `None`
    /// if this session is not a fork.
    pub origin: Option<ForkOrigin>,
    /// The time of the last write to the session, with at least millisecond precision. The time of
    /// the last write determines the session's position in the session list, and whether the
    /// session is pruned.
    pub updated_at: SystemTime,
    /// The reason why the session cannot be read, for example because it is damaged. `None` if the
    /// store was able to read the values in this list. If this field is set, the other values may
    /// be unknown: then `version` is 0, `origin` is `None`, `updated_at` is the start of 1970, and
    /// `id` is a name that identifies the session to a human.
    pub read_error: Option<String>,
}

impl SessionInfo {
    /// Compares two sessions by their positions in the session list. The list starts with the most
    /// recently modified session; sessions that were modified at the same time are sorted by id.
    pub fn list_order(&self, other: &Self) -> Ordering {
        other.updated_at.cmp(&self.updated_at).then_with(|| self.id.cmp(&other.id))
    }
}

/// The session from which a fork was created, and the number of inherited entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ForkOrigin {
    /// The id of the original session.
    pub id: String,
    /// The number of entries that the fork inherits from the original session.
    pub at: u64,
}

/// The source of a [`Conflict`](ErrorKind::Conflict) error that is returned if another writer has
/// appended to the session.
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
/// assert_eq!(error.find_source::<Conflict>().unwrap().found, 1);
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session `{id}` has version {found}, not {expected}")]
pub struct Conflict {
    /// The session's id.
    pub id: String,
    /// The version that the failed append expected.
    pub expected: u64,
    /// The session's actual version in the store.
    pub found: u64,
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Self {
        Self::new(ErrorKind::Conflict, conflict.to_string()).with_source(conflict)
    }
}
