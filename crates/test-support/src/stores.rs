//! Stores that count and fail, and tools that record their keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use turnstream::session::{Entry, MemoryStore, Store};
use turnstream::{Error, ErrorKind};

use crate::forward_to_inner;

/// A store that counts the written entries, and fails on request.
#[derive(Clone, Default)]
pub struct CountingStore {
    pub inner: MemoryStore,
    pub append_count: Arc<AtomicUsize>,
    pub entry_count: Arc<AtomicUsize>,
    pub is_failing: Arc<AtomicBool>,
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
