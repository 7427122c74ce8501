//! The client at the other end of a connection or session, with its capabilities and its requests
//! in progress.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::AbortHandle;
use serde_json::{Map, Value};
use tokio::sync::{oneshot, watch};

use crate::lock::lock_ignoring_poison;

/// The state of a client for the duration of its connection or session. No lock is held across an
/// await point.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The protocol version negotiated by `initialize`, or `None` before the negotiation and
    /// throughout the modern era.
    version: Mutex<Option<String>>,
    capabilities: Mutex<Map<String, Value>>,
    is_initialized: AtomicBool,
    request_count: AtomicU64,
    /// The server's requests that are awaiting a response, keyed by id.
    pending: Mutex<HashMap<String, oneshot::Sender<Result<Value, Value>>>>,
    /// The client's running requests, keyed by id.
    running: Mutex<HashMap<String, AbortHandle>>,
    is_closed: watch::Sender<bool>,
}

impl Peer {
    pub(super) fn start_legacy(&self, version: &str, capabilities: Map<String, Value>) {
        *lock_ignoring_poison(&self.version) = Some(version.to_owned());
        *lock_ignoring_poison(&self.capabilities) = capabilities;
    }

    /// Returns the protocol version negotiated by `initialize`.
    pub(super) fn legacy_version(&self) -> Option<String> {
        lock_ignoring_poison(&self.version).clone()
    }

    /// Returns whether the client declared this capability in `initialize`.
    pub(super) fn has_capability(&self, name: &str) -> bool {
        lock_ignoring_poison(&self.capabilities).contains_key(name)
    }

    pub(super) fn set_initialized(&self) {
        self.is_initialized.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.is_initialized.load(Ordering::SeqCst)
    }

    /// Returns a new id for a request from the server to the client.
    pub(super) fn next_request_id(&self) -> String {
        format!("server-{}", self.request_count.fetch_add(1, Ordering::SeqCst))
    }

    /// Registers a request from the server to the client. The returned receiver resolves to the
    /// client's result or error for the request with this `id`.
    pub(super) fn expect_response(&self, id: &str) -> oneshot::Receiver<Result<Value, Value>> {
        let (sender, receiver) = oneshot::channel();
        lock_ignoring_poison(&self.pending).insert(id.to_owned(), sender);
        receiver
    }

    /// Passes a response from the client to the request that is waiting for it. Returns `false` if
    /// there is no such request.
    pub(super) fn take_response(&self, id: &Value, outcome: Result<Value, Value>) -> bool {
        let waiting = id.as_str().and_then(|id| lock_ignoring_poison(&self.pending).remove(id));
        let Some(waiting) = waiting else {
            return false;
        };
        // A cancelled call no longer waits for the response, but the client may still send it.
        let _ = waiting.send(outcome);
        true
    }

    /// Registers a request from the client. Returns `false` if the request's id is already in use.
    pub(super) fn add_running(&self, id: &Value, abort: AbortHandle) -> bool {
        let mut running = lock_ignoring_poison(&self.running);
        if running.contains_key(&id.to_string()) {
            return false;
        }
        running.insert(id.to_string(), abort);
        true
    }

    pub(super) fn remove_running(&self, id: &Value) {
        lock_ignoring_poison(&self.running).remove(&id.to_string());
    }

    /// Cancels a request. An unknown id is ignored, since the protocol allows a client to cancel a
    /// request that has already been answered.
    pub(super) fn cancel(&self, id: &Value) {
        if let Some(abort) = lock_ignoring_poison(&self.running).remove(&id.to_string()) {
            abort.abort();
        }
    }

    /// Ends the session, cancelling its requests and ending its streams.
    pub(super) fn close(&self) {
        for (_, abort) in lock_ignoring_poison(&self.running).drain() {
            abort.abort();
        }
        // Notifies the calls that are waiting for the client that the client is gone.
        lock_ignoring_poison(&self.pending).clear();
        self.is_closed.send_replace(true);
    }

    /// Waits until the session is [closed](Self::close).
    pub(super) async fn wait_until_closed(&self) {
        let mut closed = self.is_closed.subscribe();
        // Waiting cannot fail, because `self` owns the sender.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}
