//! What a server remembers for the test that started it.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use tokio::sync::watch;

use crate::lock::lock_ignoring_poison;
use crate::testing::http::request::HttpRequest;

/// Shared by a server and its connections. No lock in here is held across an await.
#[derive(Default)]
pub(super) struct RequestLog {
    /// How many were accepted.
    pub(super) connection_count: AtomicUsize,
    /// Those received, in the order in which they were complete.
    pub(super) requests: Mutex<Vec<HttpRequest>>,
    /// How many clients left before the end of their answer.
    pub(super) closed_early_count: watch::Sender<usize>,
}

/// Counts only: requests hold keys and prompts.
impl std::fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("connections", &self.connection_count)
            .field("requests", &lock_ignoring_poison(&self.requests).len())
            .field("closed_early", &*self.closed_early_count.borrow())
            .finish()
    }
}
