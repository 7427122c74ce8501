//! Stores that count and fail, and tools that record their keys.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use turnstream::session::{Entry, MemoryStore, Session, Store};
use turnstream::tool::Tool;
use turnstream::{Error, ErrorKind};

use super::tools::spec;

/// Forwards all methods of a store except `append` to the field `inner`.
macro_rules! forward_to_inner {
    () => {
        fn load<'a>(
            &'a self,
            id: &'a str,
            from: u64,
        ) -> futures::future::BoxFuture<
            'a,
            Result<Option<Vec<turnstream::session::Entry>>, turnstream::Error>,
        > {
            self.inner.load(id, from)
        }

        fn list(
            &self,
        ) -> futures::future::BoxFuture<
            '_,
            Result<Vec<turnstream::session::SessionInfo>, turnstream::Error>,
        > {
            self.inner.list()
        }

        fn fork<'a>(
            &'a self,
            id: &'a str,
            at: u64,
            new: &'a str,
        ) -> futures::future::BoxFuture<'a, Result<(), turnstream::Error>> {
            self.inner.fork(id, at, new)
        }

        fn delete<'a>(
            &'a self,
            id: &'a str,
        ) -> futures::future::BoxFuture<'a, Result<bool, turnstream::Error>> {
            self.inner.delete(id)
        }

        fn prune(
            &self,
            before: std::time::SystemTime,
        ) -> futures::future::BoxFuture<'_, Result<Vec<String>, turnstream::Error>> {
            self.inner.prune(before)
        }
    };
}
#[allow(unused_imports, reason = "only the tests of sessions define stores")]
pub(crate) use forward_to_inner;

/// A store that counts the written entries, and fails on request.
#[derive(Clone, Default)]
pub(crate) struct CountingStore {
    pub(crate) inner: MemoryStore,
    pub(crate) append_count: Arc<AtomicUsize>,
    pub(crate) entry_count: Arc<AtomicUsize>,
    pub(crate) is_failing: Arc<AtomicBool>,
}

impl Store for CountingStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        async move {
            // Yields, so that other tasks run before the append.
            tokio::task::yield_now().await;
            if self.is_failing.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Store, "the disk is full"));
            }
            self.append_count.fetch_add(1, Ordering::Relaxed);
            self.entry_count.fetch_add(entries.len(), Ordering::Relaxed);
            self.inner.append(id, expected, entries).await
        }
        .boxed()
    }

    forward_to_inner!();
}

pub(crate) async fn open_session(store: &(impl Store + Clone + 'static)) -> Session {
    Session::open(store.clone(), "s").await.unwrap()
}

/// The keys under which calls ran.
pub(crate) type IdempotencyKeys = Arc<Mutex<Vec<String>>>;

/// A tool that records its key, and never ends if `hangs` is set.
pub(crate) fn key_recording_tool(name: &str, keys: &IdempotencyKeys, hangs: bool) -> Tool {
    let keys = Arc::clone(keys);
    let tool = Tool::raw(spec(name), move |_args, cx| {
        keys.lock().unwrap().push(cx.idempotency_key().to_owned());
        async move {
            if hangs {
                futures::future::pending::<()>().await;
            }
            "done"
        }
    });
    tool.unwrap()
}
