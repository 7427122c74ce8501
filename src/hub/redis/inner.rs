//! The state shared by all objects that use the same connection to the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use redis::Client;

use crate::env::{Ids, SystemIds};
use crate::hub::redis::connection::Connection;
use crate::hub::redis::keys::Keys;
use crate::hub::redis::mirror::Mirror;
use crate::hub::redis::options::RedisOptions;
use crate::hub::redis::scripts::Scripts;
use crate::hub::redis::wakeups::Wakeups;
use crate::lock::lock_ignoring_poison;

/// The state shared by all objects that use the same connection to the server.
pub(super) struct Inner {
    pub(super) settings: RedisOptions,
    pub(super) keys: Keys,
    pub(super) client: Client,
    pub(super) connection: Connection,
    pub(super) scripts: Scripts,
    pub(super) wakeups: Arc<Wakeups>,
    /// The name that identifies this process to other processes.
    pub(super) process: String,
    state: Mutex<ProcessState>,
    cut_readers: AtomicU64,
}

/// The runs and logs in this process.
#[derive(Default)]
pub(super) struct ProcessState {
    /// The logs of this process's own runs, and of other runs that the process reads.
    pub(super) mirrors: HashMap<String, Arc<Mirror>>,
    /// The tokens for the inboxes that this process has opened, by run.
    pub(super) inboxes: HashMap<String, String>,
    /// The runs in this process that are listed in the directory, by run id.
    pub(super) announced: HashMap<String, AnnouncedHere>,
    /// The runs that ended while the server could not be reached, so that their ends must still be
    /// reported.
    pub(super) waiting_ends: HashMap<String, AnnouncedHere>,
}

/// A run in this process that is listed in the directory.
#[derive(Clone)]
pub(super) struct AnnouncedHere {
    pub(super) key: String,
    pub(super) order: u64,
}

impl Inner {
    pub(super) fn new(client: Client, settings: RedisOptions) -> Self {
        Self {
            keys: Keys::new(&settings.prefix),
            settings,
            connection: Connection::new(client.clone()),
            client,
            scripts: Scripts::default(),
            wakeups: Arc::default(),
            process: SystemIds.next_id(),
            state: Mutex::default(),
            cut_readers: AtomicU64::new(0),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ProcessState> {
        // No user code runs while this lock is held.
        lock_ignoring_poison(&self.state)
    }

    pub(super) fn count_cut_readers(&self, count: u64) {
        self.cut_readers.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn cut_readers(&self) -> u64 {
        self.cut_readers.load(Ordering::Relaxed)
    }
}
