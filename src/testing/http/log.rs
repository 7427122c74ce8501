//! What a server remembers for the test that started it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;

use crate::lock::lock;
use crate::testing::http::request::HttpRequest;

/// Shared by a server and its connections. No lock in here is held across an await.
#[derive(Default)]
pub(super) struct Log {
    connections: AtomicUsize,
    requests: Mutex<Vec<HttpRequest>>,
    closed_early: watch::Sender<usize>,
}

impl Log {
    /// Notes a connection and returns its number, counted from 0.
    pub(super) fn connection_accepted(&self) -> usize {
        self.connections.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn request_received(&self, request: HttpRequest) {
        self.locked_requests().push(request);
    }

    pub(super) fn client_left(&self) {
        self.closed_early.send_modify(|count| *count += 1);
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn requests(&self) -> Vec<HttpRequest> {
        self.locked_requests().clone()
    }

    pub(super) fn closed_early(&self) -> usize {
        *self.closed_early.borrow()
    }

    /// Waits until a client has left early.
    pub(super) async fn a_client_left(&self) {
        let mut count = self.closed_early.subscribe();
        // An error would mean that the sender is gone, and it is here, in `self`.
        let _ = count.wait_for(|count| *count > 0).await;
    }

    fn locked_requests(&self) -> MutexGuard<'_, Vec<HttpRequest>> {
        // A push or a clone that panics leaves the list whole.
        lock(&self.requests)
    }
}

/// Counts only: requests hold keys and prompts.
impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("connections", &self.connections())
            .field("requests", &self.locked_requests().len())
            .field("closed_early", &self.closed_early())
            .finish()
    }
}
