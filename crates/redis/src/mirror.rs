//! This process's copy of a run's log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use turnstream::hub::backend::RunLog;
use turnstream::hub::{LogUnavailable, NotRunning, RunLost};
use turnstream::task::OwnedTask;
use turnstream::{Error, ErrorKind};

use crate::lock::lock_ignoring_poison;

/// This process's copy of a run's log. If the run is in this process, the copy contains the entries
/// that the run has appended; if the run is in another process, the copy contains the entries that
/// this process has read. All readers in this process share the copy.
pub(crate) struct Mirror {
    pub(crate) run: Arc<str>,
    pub(crate) log: Arc<RunLog>,
    state: Mutex<MirrorState>,
    /// The result of the first read of the log.
    loaded: watch::Sender<Option<Result<(), Error>>>,
    /// The number of followers started so far.
    followers: AtomicU64,
}

#[derive(Default)]
struct MirrorState {
    own: Option<OwnAttempt>,
    readers: usize,
    /// The task that reads the log while the log has readers.
    follower: Option<OwnedTask>,
    is_removed: bool,
}

/// An attempt at a run in this process.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct OwnAttempt {
    pub(crate) epoch: u64,
    /// The attempt's epoch, with a token that is unique to the attempt.
    pub(crate) owner: String,
}

impl Mirror {
    pub(crate) fn new(run: &str) -> Self {
        Self {
            run: run.into(),
            log: Arc::default(),
            state: Mutex::default(),
            loaded: watch::Sender::new(None),
            followers: AtomicU64::new(0),
        }
    }

    /// Records that this process has started an attempt.
    pub(crate) fn own(&self, own: OwnAttempt) {
        self.log.begin(own.epoch);
        lock_ignoring_poison(&self.state).own = Some(own);
        self.set_loaded(Ok(()));
    }

    pub(crate) fn own_attempt(&self) -> Option<OwnAttempt> {
        lock_ignoring_poison(&self.state).own.clone()
    }

    /// Ends the log for this process's readers.
    pub(crate) fn remove(&self) {
        let mut state = lock_ignoring_poison(&self.state);
        (state.is_removed, state.own) = (true, None);
        self.log.close(dropped_error());
    }

    pub(crate) fn is_loaded(&self) -> bool {
        matches!(&*self.loaded.borrow(), Some(Ok(())))
    }

    /// Waits until the log has been read for the first time.
    pub(crate) async fn wait_until_loaded(&self) -> Result<(), Error> {
        let mut loaded = self.loaded.subscribe();
        match loaded.wait_for(Option::is_some).await {
            Ok(loaded) => loaded.clone().unwrap_or(Ok(())),
            // This error cannot happen, because `self` owns the sender.
            Err(_) => Ok(()),
        }
    }

    /// Records that the log currently cannot be read.
    pub(crate) fn set_outage(&self, error: Error) {
        self.log.set_outage(Some(error.clone()));
        self.set_loaded(Err(error));
    }

    /// Records that a follower was dropped. If the log still has readers, the follower was dropped
    /// because its runtime has ended, so the log can no longer be read.
    pub(crate) fn end_follower(&self, number: u64) {
        if self.followers.load(Ordering::SeqCst) == number {
            self.set_outage(LogUnavailable.into());
        }
    }

    fn set_loaded(&self, loaded: Result<(), Error>) {
        if !self.is_loaded() {
            self.loaded.send_replace(Some(loaded));
        }
    }

    /// Increments the reader count. The first reader of a log starts a follower.
    pub(crate) fn add_reader(&self, follower: impl FnOnce(u64) -> OwnedTask) {
        let mut state = lock_ignoring_poison(&self.state);
        state.readers += 1;
        if state.follower.is_none() {
            self.log.set_outage(None);
            let number = self.followers.fetch_add(1, Ordering::SeqCst) + 1;
            state.follower = Some(follower(number));
        }
    }

    /// Decrements the reader count. Returns whether the log is no longer needed.
    pub(crate) fn remove_reader(&self) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        state.readers -= 1;
        if state.readers > 0 {
            return false;
        }
        self.followers.fetch_add(1, Ordering::SeqCst);
        let (follower, is_unneeded) = (state.follower.take(), state.own.is_none());
        drop(state);
        drop(follower);
        is_unneeded
    }

    /// Closes the log for its readers if no more entries can follow, and reopens the log if the run
    /// is alive.
    pub(crate) fn judge(&self, is_alive: bool, is_dropped: bool) {
        let state = lock_ignoring_poison(&self.state);
        let log = &self.log;
        let is_empty = log.last_position().is_none();
        let run = || self.run.to_string();
        match () {
            () if state.is_removed || state.own.is_some() => {}
            () if is_dropped => log.close(dropped_error()),
            () if log.has_ended() => {}
            () if is_alive => log.reopen(),
            () if is_empty => log.close(NotRunning { run: run() }.into()),
            () => log.close(RunLost { run: run() }.into()),
        }
        drop(state);
        // If no entry has been appended yet, readers wait for the first entry.
        if !(is_empty && is_alive) {
            self.set_loaded(Ok(()));
        }
    }
}

fn dropped_error() -> Error {
    Error::new(ErrorKind::Other, "the run was dropped")
}

/// Parses an entry id into its epoch and number.
pub(crate) fn parse_id(id: &str) -> Option<(u64, u64)> {
    let (epoch, number) = id.split_once('-')?;
    Some((epoch.parse().ok()?, number.parse().ok()?))
}
