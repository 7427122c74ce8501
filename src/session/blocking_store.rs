//! Support for stores that are implemented synchronously.

use std::time::SystemTime;

use crate::error::Error;
use crate::session::{Entry, Lease, SessionInfo};

/// The operations of a [`Store`](crate::session::Store), as synchronous methods.
pub(super) trait BlockingStore {
    /// Appends entries. If `lease` is given, this method implements
    /// [`append_leased`](crate::session::Store::append_leased).
    fn append(
        &mut self,
        lease: Option<&Lease>,
        id: &str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> Result<u64, Error>;
    fn lease(&mut self, id: &str) -> Result<Lease, Error>;
    fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error>;
    fn list(&mut self) -> Result<Vec<SessionInfo>, Error>;
    fn fork(&mut self, id: &str, at: u64, new: &str) -> Result<(), Error>;
    fn delete(&mut self, id: &str) -> Result<bool, Error>;
    fn prune(&mut self, before: SystemTime) -> Result<Vec<String>, Error>;
}

/// Implements `Store` for a type whose `sessions` field has a `run` method. The `run` method takes
/// a closure and returns a future. The first poll of the future executes the closure on a
/// [`BlockingStore`].
macro_rules! impl_store_from_blocking {
    ($store:ty) => {
        impl $crate::session::Store for $store {
            fn append<'a>(
                &'a self,
                id: &'a str,
                expected: u64,
                entries: Vec<Entry>,
            ) -> BoxFuture<'a, Result<u64, Error>> {
                let id = id.to_owned();
                self.sessions
                    .run(move |sessions| sessions.append(None, &id, expected, entries))
                    .boxed()
            }

            fn append_leased<'a>(
                &'a self,
                lease: &'a Lease,
                id: &'a str,
                expected: u64,
                entries: Vec<Entry>,
            ) -> BoxFuture<'a, Result<u64, Error>> {
                let (lease, id) = (lease.clone(), id.to_owned());
                self.sessions
                    .run(move |sessions| sessions.append(Some(&lease), &id, expected, entries))
                    .boxed()
            }

            fn lease<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Lease, Error>> {
                let id = id.to_owned();
                self.sessions.run(move |sessions| sessions.lease(&id)).boxed()
            }

            fn load<'a>(
                &'a self,
                id: &'a str,
                from: u64,
            ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
                let id = id.to_owned();
                self.sessions.run(move |sessions| sessions.load(&id, from)).boxed()
            }

            fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
                self.sessions.run(|sessions| sessions.list()).boxed()
            }

            fn fork<'a>(
                &'a self,
                id: &'a str,
                at: u64,
                new: &'a str,
            ) -> BoxFuture<'a, Result<(), Error>> {
                let (id, new) = (id.to_owned(), new.to_owned());
                self.sessions.run(move |sessions| sessions.fork(&id, at, &new)).boxed()
            }

            fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
                let id = id.to_owned();
                self.sessions.run(move |sessions| sessions.delete(&id)).boxed()
            }

            fn prune(&self, before: SystemTime) -> BoxFuture<'_, Result<Vec<String>, Error>> {
                self.sessions.run(move |sessions| sessions.prune(before)).boxed()
            }
        }
    };
}

pub(super) use impl_store_from_blocking;
