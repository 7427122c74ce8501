//! Stores that change one method of another store.

/// Forwards all methods of a store to the field `inner`, except `append` and what has a default.
#[macro_export]
macro_rules! forward_to_inner {
    () => {
        fn load<'a>(
            &'a self,
            id: &'a str,
            from: u64,
        ) -> ::futures::future::BoxFuture<
            'a,
            Result<Option<Vec<::turnstream::session::Entry>>, ::turnstream::Error>,
        > {
            self.inner.load(id, from)
        }

        fn list(
            &self,
        ) -> ::futures::future::BoxFuture<
            '_,
            Result<Vec<::turnstream::session::SessionInfo>, ::turnstream::Error>,
        > {
            self.inner.list()
        }

        fn fork<'a>(
            &'a self,
            id: &'a str,
            at: u64,
            new: &'a str,
        ) -> ::futures::future::BoxFuture<'a, Result<(), ::turnstream::Error>> {
            self.inner.fork(id, at, new)
        }

        fn delete<'a>(
            &'a self,
            id: &'a str,
        ) -> ::futures::future::BoxFuture<'a, Result<bool, ::turnstream::Error>> {
            self.inner.delete(id)
        }

        fn prune(
            &self,
            before: ::std::time::SystemTime,
        ) -> ::futures::future::BoxFuture<'_, Result<Vec<String>, ::turnstream::Error>> {
            self.inner.prune(before)
        }
    };
}
