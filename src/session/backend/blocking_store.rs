//! Support for stores that are implemented synchronously.

use std::time::SystemTime;

use futures::future::BoxFuture;

use crate::error::Error;
use crate::session::store::removal_unsupported_error;
use crate::session::{Entry, Lease, SessionInfo};

/// The operations of a [`Store`](crate::session::Store), as synchronous methods.
///
/// The methods have the contracts of the methods of the same names in
/// [`Store`](crate::session::Store), errors included. A panic in a method is returned as an error
/// if the value is in a [`StoreThread`](super::StoreThread).
pub trait BlockingStore {
    /// Appends entries, and returns the new version. If `lease` is given, this method implements
    /// [`append_leased`](crate::session::Store::append_leased).
    fn append(
        &mut self,
        lease: Option<&Lease>,
        id: &str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> Result<u64, Error>;

    /// Acquires the lease on a session, without waiting; see
    /// [`Store::lease`](crate::session::Store::lease).
    fn lease(&mut self, id: &str) -> Result<Lease, Error>;

    /// Returns the entries from number `from` onward, or `None` if there is no such session; see
    /// [`Store::load`](crate::session::Store::load).
    fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error>;

    /// Lists all sessions, starting with the most recently modified session; see
    /// [`Store::list`](crate::session::Store::list).
    fn list(&mut self) -> Result<Vec<SessionInfo>, Error>;

    /// Creates the session `new` from the first `at` entries of a session, without copying them;
    /// see [`Store::fork`](crate::session::Store::fork).
    fn fork(&mut self, id: &str, at: u64, new: &str) -> Result<(), Error>;

    /// Deletes a session, and returns whether it existed.
    ///
    /// The default implementation returns an [`Unsupported`](crate::ErrorKind::Unsupported) error.
    fn delete(&mut self, id: &str) -> Result<bool, Error> {
        let _ = id;
        Err(removal_unsupported_error())
    }

    /// Deletes the sessions that were last written to before the given time, and returns their ids.
    ///
    /// The default implementation returns an [`Unsupported`](crate::ErrorKind::Unsupported) error.
    fn prune(&mut self, before: SystemTime) -> Result<Vec<String>, Error> {
        let _ = before;
        Err(removal_unsupported_error())
    }
}

/// The future that a method of a [`Store`](crate::session::Store) returns.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// Implements [`Store`](crate::session::Store) for a type whose named field is a
/// [`StoreThread`](crate::session::backend::StoreThread) with a
/// [`BlockingStore`](crate::session::backend::BlockingStore).
///
/// The first poll of a future that a method returns submits the operation. Dropping the future
/// after that does not cancel the operation. See [`session::backend`](crate::session::backend) for
/// an example.
#[macro_export]
macro_rules! impl_blocking_store {
    ($store:ty, $field:ident) => {
        const _: () = {
            use ::std::boxed::Box;
            use ::std::option::Option::{self, None, Some};
            use ::std::string::String;
            use ::std::time::SystemTime;
            use ::std::vec::Vec;
            use $crate::session::backend::{BlockingStore, StoreFuture};
            use $crate::session::{Entry, Lease, SessionInfo, Store};

            impl Store for $store {
                fn append<'a>(
                    &'a self,
                    id: &'a str,
                    expected: u64,
                    entries: Vec<Entry>,
                ) -> StoreFuture<'a, u64> {
                    let id = String::from(id);
                    Box::pin(self.$field.run(move |sessions| {
                        BlockingStore::append(sessions, None, &id, expected, entries)
                    }))
                }

                fn append_leased<'a>(
                    &'a self,
                    lease: &'a Lease,
                    id: &'a str,
                    expected: u64,
                    entries: Vec<Entry>,
                ) -> StoreFuture<'a, u64> {
                    let (lease, id) = (Lease::clone(lease), String::from(id));
                    Box::pin(self.$field.run(move |sessions| {
                        BlockingStore::append(sessions, Some(&lease), &id, expected, entries)
                    }))
                }

                fn lease<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Lease> {
                    let id = String::from(id);
                    Box::pin(self.$field.run(move |sessions| BlockingStore::lease(sessions, &id)))
                }

                fn load<'a>(
                    &'a self,
                    id: &'a str,
                    from: u64,
                ) -> StoreFuture<'a, Option<Vec<Entry>>> {
                    let id = String::from(id);
                    let load = move |sessions: &mut _| BlockingStore::load(sessions, &id, from);
                    Box::pin(self.$field.run(load))
                }

                fn list(&self) -> StoreFuture<'_, Vec<SessionInfo>> {
                    Box::pin(self.$field.run(BlockingStore::list))
                }

                fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> StoreFuture<'a, ()> {
                    let (id, new) = (String::from(id), String::from(new));
                    let fork = move |sessions: &mut _| BlockingStore::fork(sessions, &id, at, &new);
                    Box::pin(self.$field.run(fork))
                }

                fn delete<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool> {
                    let id = String::from(id);
                    Box::pin(self.$field.run(move |sessions| BlockingStore::delete(sessions, &id)))
                }

                fn prune(&self, before: SystemTime) -> StoreFuture<'_, Vec<String>> {
                    let prune = move |sessions: &mut _| BlockingStore::prune(sessions, before);
                    Box::pin(self.$field.run(prune))
                }
            }
        };
    };
}

pub use impl_blocking_store;
