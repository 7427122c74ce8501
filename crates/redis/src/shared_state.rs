//! The state shared by all objects that use the same connection to the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use redis::Client;
use turnstream::env::{Ids, SystemIds};

use crate::connection::Connection;
use crate::keys::Keys;
use crate::lock::lock_ignoring_poison;
use crate::mirror::Mirror;
use crate::options::RedisOptions;
use crate::scripts::Scripts;
use crate::wakeups::Wakeups;

/// The state shared by all objects that use the same connection to the server.
pub(crate) struct SharedState {
    pub(crate) settings: RedisOptions,
    pub(crate) keys: Keys,
    pub(crate) client: Client,
    pub(crate) connection: Connection,
    pub(crate) scripts: Scripts,
    pub(crate) wakeups: Arc<Wakeups>,
    /// The name that identifies this process to other processes.
    pub(crate) process: String,
    state: Mutex<ProcessState>,
    cut_readers: AtomicU64,
}

/// The runs and logs in this process.
#[derive(Default)]
pub(crate) struct ProcessState {
    /// The logs of this process's own runs, and of other runs that the process reads.
    pub(crate) mirrors: HashMap<String, Arc<Mirror>>,
    /// The tokens for the inboxes that this process has opened, by run.
    pub(crate) inboxes: HashMap<String, String>,
    /// The runs in this process that are listed in the directory, by run id.
    pub(crate) announced: HashMap<String, AnnouncedHere>,
    /// The runs that ended while the server could not be reached, so that their ends must still be
    /// reported.
    pub(crate) waiting_ends: HashMap<String, AnnouncedHere>,
}

/// A run in this process that is listed in the directory.
#[derive(Clone)]
pub(crate) struct AnnouncedHere {
    pub(crate) key: String,
    pub(crate) order: u64,
}

impl SharedState {
    pub(crate) fn new(client: Client, settings: RedisOptions) -> Self {
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

    pub(crate) fn state(&self) -> MutexGuard<'_, ProcessState> {
        // No user code runs while this lock is held.
        lock_ignoring_poison(&self.state)
    }

    pub(crate) fn count_cut_readers(&self, count: u64) {
        self.cut_readers.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn cut_readers(&self) -> u64 {
        self.cut_readers.load(Ordering::Relaxed)
    }
}
