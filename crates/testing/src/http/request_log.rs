//! Records a server's requests and connection counts, for use in tests.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use tokio::sync::watch;

use crate::http::request::HttpRequest;
use crate::lock::lock_ignoring_poison;

/// The data that a server records, shared with its connections. No lock is held across an await
/// point.
#[derive(Default)]
pub(super) struct RequestLog {
    /// The number of connections accepted so far.
    pub(super) connection_count: AtomicUsize,
    /// The requests received so far, in the order in which they were completed.
    pub(super) requests: Mutex<Vec<HttpRequest>>,
    /// The number of clients that disconnected before the end of a response.
    pub(super) closed_early_count: watch::Sender<usize>,
}

/// Prints only counts, because requests contain keys and prompts.
impl std::fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestLog")
            .field("connections", &self.connection_count)
            .field("requests", &lock_ignoring_poison(&self.requests).len())
            .field("closed_early", &*self.closed_early_count.borrow())
            .finish()
    }
}
