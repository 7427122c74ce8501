//! The sessions whose runs have lost their lease.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// The stored ids of sessions whose runs in this process have lost their lease, because the
/// database was restarted or this process was suspended.
#[derive(Default)]
pub(super) struct LostLeases {
    sessions: Mutex<BTreeSet<String>>,
    added: Notify,
}

impl LostLeases {
    pub(super) fn add(&self, session: &str) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).insert(session.to_owned());
        self.added.notify_one();
    }

    pub(super) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until a session is added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }
}
