//! What the tests of sessions share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use turnstream::session::{Entry, Listed, MemoryStore, Session, Store};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Error, ErrorKind};

/// A store that counts what is written, and fails when it is told to.
#[derive(Clone, Default)]
pub(crate) struct Counting {
    pub(crate) inner: MemoryStore,
    pub(crate) appends: Arc<AtomicUsize>,
    pub(crate) entries: Arc<AtomicUsize>,
    pub(crate) fails: Arc<AtomicBool>,
}

impl Store for Counting {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        async move {
            // Somebody else has the turn.
            tokio::task::yield_now().await;
            if self.fails.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Store, "the disk is full"));
            }
            self.appends.fetch_add(1, Ordering::Relaxed);
            self.entries.fetch_add(entries.len(), Ordering::Relaxed);
            self.inner.append(id, expected, entries).await
        }
        .boxed()
    }

    fn load<'a>(
        &'a self,
        id: &'a str,
        from: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<Entry>>, Error>> {
        self.inner.load(id, from)
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, Error>> {
        self.inner.list()
    }

    fn fork<'a>(&'a self, id: &'a str, at: u64, new: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.fork(id, at, new)
    }
}

pub(crate) async fn open(store: &(impl Store + Clone + 'static)) -> Session {
    Session::open(store.clone(), "s").await.unwrap()
}

pub(crate) fn spec(name: &str) -> ToolSpec {
    let parameters = json!({ "type": "object" });
    ToolSpec { name: name.into(), description: String::new(), parameters }
}

/// The keys under which calls ran.
pub(crate) type Keys = Arc<Mutex<Vec<String>>>;

/// A tool that notes its key, and never ends where it is told to hang.
pub(crate) fn tool(name: &str, keys: &Keys, hangs: bool) -> Tool {
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
