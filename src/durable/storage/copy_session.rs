//! Copies sessions from an engine to a store.

use crate::error::{Error, panic_to_error_async};
use crate::session::{Conflict, Entry, Store};

/// The maximum number of attempts to write a copy that other writers are changing at the same time.
const MAX_ATTEMPTS: usize = 8;

/// Copies a session from an engine to a store, and returns the number of entries in the copy.
///
/// A store can list and search sessions, but an engine cannot. The copy is one-way: only this
/// function may write to the copy, and no run reads it.
///
/// `entries` must contain all of the session's entries. This function appends the entries that are
/// missing from the copy. If the copy contains different entries, the session was removed and
/// created again, so the function deletes the copy and writes a new one. If `entries` is empty, the
/// function only deletes the copy. If the copy already contains all of `entries` and more, it
/// reflects a later state of the session and is left unchanged.
///
/// Concurrent calls for the same session are safe, and so is dropping the returned future. However,
/// if a session may be removed, the session's engine must make the copies one at a time, each from
/// the session's entries at the time of the copy.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::durable::storage::copy_session;
/// use turnstream::durable::Attempt;
/// use turnstream::provider::Scripted;
/// use turnstream::session::{MemoryStore, Store};
/// use turnstream_testing::durable_suite::MemoryEngine;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// let mut engine = MemoryEngine::new();
/// Attempt::run(&agent, "chat-1", engine.entries(), "Hi").drive(&mut engine).await?;
///
/// let store = MemoryStore::new(); // or a `PostgresStore`
/// copy_session(&store, "chat-1", &engine.entries()).await?;
/// assert_eq!(store.list().await?[0].id, "chat-1");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns a [`Store`](crate::ErrorKind::Store) error if the store fails, and a
/// [`Panic`](crate::ErrorKind::Panic) error if the store panics. Returns a
/// [`Conflict`](crate::ErrorKind::Conflict) error if concurrent writers change the copy during all
/// eight attempts. Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if the id
/// is empty, or if a copy that must be deleted has forks. Returns an
/// [`Unsupported`](crate::ErrorKind::Unsupported) error if the store cannot delete sessions. After
/// an error, the next call continues from the copy's current state.
pub async fn copy_session(store: &dyn Store, id: &str, entries: &[Entry]) -> Result<u64, Error> {
    panic_to_error_async("the store", async {
        for _ in 1..MAX_ATTEMPTS {
            match try_copy(store, id, entries).await {
                Err(error) if error.find_source::<Conflict>().is_some() => {}
                copied => return copied,
            }
        }
        try_copy(store, id, entries).await
    })
    .await
}

async fn try_copy(store: &dyn Store, id: &str, entries: &[Entry]) -> Result<u64, Error> {
    let copy = store.load(id, 0).await?.unwrap_or_default();
    if !entries.is_empty() && copy.starts_with(entries) {
        return Ok(copy.len() as u64);
    }
    let copied = match entries.starts_with(&copy) {
        true => copy.len(),
        false => {
            store.delete(id).await?;
            0
        }
    };
    store.append(id, copied as u64, entries[copied..].to_vec()).await
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt;
    use futures::executor::block_on;
    use futures::future::BoxFuture;

    use super::*;
    use crate::error::ErrorKind;
    use crate::item::Item;
    use crate::lock::lock_ignoring_poison;
    use crate::session::{MemoryStore, SessionInfo};

    fn entries(texts: &str) -> Vec<Entry> {
        texts.split_whitespace().map(|text| Item::user(text).into()).collect()
    }

    /// Copies a session with the entries `session` over a copy with the entries `copied`, and
    /// checks that the copy then has the entries `expected`.
    #[track_caller]
    fn check(copied: &str, session: &str, expected: &str) {
        let store = MemoryStore::new();
        block_on(store.append("s", 0, entries(copied))).unwrap();
        let version = block_on(copy_session(&store, "s", &entries(session))).unwrap();
        let found = block_on(store.load("s", 0)).unwrap();
        assert_eq!(found.clone().unwrap_or_default(), entries(expected));
        assert_eq!(version, entries(expected).len() as u64);
        assert_eq!(found.is_some(), !expected.is_empty(), "whether the session is there");
    }

    #[test]
    fn a_copy_receives_its_missing_entries() {
        check("", "a", "a");
        check("a", "a b c", "a b c");
        check("a b", "a b", "a b");
    }

    #[test]
    fn the_copy_of_a_recreated_session_is_rewritten() {
        check("a b", "c", "c");
        check("a b", "a c d", "a c d");
    }

    #[test]
    fn a_session_without_entries_has_no_copy() {
        check("a b", "", "");
        check("", "", "");
    }

    #[test]
    fn an_earlier_state_of_a_session_does_not_change_its_copy() {
        check("a b c", "a", "a b c");
    }

    /// A store in which, before each append by the test, another writer appends the next entries
    /// from `others`, if any are left.
    struct SharedStore {
        store: MemoryStore,
        others: Mutex<Vec<Vec<Entry>>>,
    }

    impl SharedStore {
        fn new(others: &[&str]) -> Self {
            let others = others.iter().rev().map(|texts| entries(texts)).collect();
            Self { store: MemoryStore::new(), others: Mutex::new(others) }
        }
    }

    impl Store for SharedStore {
        fn append<'a>(
            &'a self,
            id: &'a str,
            expected: u64,
            entries: Vec<Entry>,
        ) -> BoxFuture<'a, Result<u64, Error>> {
            let other = lock_ignoring_poison(&self.others).pop();
            async move {
                if let Some(other) = other {
                    self.store.append(id, expected, other).await.unwrap();
                }
                self.store.append(id, expected, entries).await
            }
            .boxed()
        }

        fn load<'a>(
            &'a self,
            id: &'a str,
            from: u64,
        ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
            self.store.load(id, from)
        }

        fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, Error>> {
            self.store.list()
        }

        fn fork<'a>(
            &'a self,
            id: &'a str,
            at: u64,
            new: &'a str,
        ) -> BoxFuture<'a, Result<(), Error>> {
            self.store.fork(id, at, new)
        }

        fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
            self.store.delete(id)
        }
    }

    #[test]
    fn a_concurrently_created_copy_is_continued() {
        // Another writer first appends a part of the same entries, then more than this copy has.
        let store = SharedStore::new(&["a", "b c"]);
        assert_eq!(block_on(copy_session(&store, "s", &entries("a b"))).unwrap(), 3);
        assert_eq!(block_on(store.load("s", 0)).unwrap(), Some(entries("a b c")));
    }

    #[test]
    fn repeated_conflicts_with_another_writer_are_an_error() {
        let store = SharedStore::new(&["b"; 20]);
        let error = block_on(copy_session(&store, "s", &entries("a"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }

    #[test]
    fn a_panic_in_the_store_is_an_error() {
        // The entries of the other writer cannot be appended without an id either.
        let store = SharedStore::new(&["b"]);
        let error = block_on(copy_session(&store, "", &entries("a"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panic);
    }

    #[test]
    fn an_empty_id_and_the_deletion_of_a_copy_with_forks_are_errors() {
        let store = MemoryStore::new();
        let copied = block_on(copy_session(&store, "", &entries("a")));
        assert_eq!(copied.unwrap_err().kind(), ErrorKind::InvalidRequest);
        block_on(store.append("s", 0, entries("a"))).unwrap();
        block_on(store.fork("s", 1, "fork")).unwrap();
        let copied = block_on(copy_session(&store, "s", &[]));
        assert_eq!(copied.unwrap_err().kind(), ErrorKind::InvalidRequest);
        assert_eq!(block_on(store.load("s", 0)).unwrap(), Some(entries("a")));
    }
}
