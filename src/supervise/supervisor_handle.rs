//! Inserting and removing runs from elsewhere.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use crate::error::{Error, ErrorKind};
use crate::lock::lock_ignoring_poison;
use crate::supervise::SupervisedStream;
use crate::supervise::restarting_run::StartFn;

/// Inserts runs into a [`Supervisor`](crate::supervise::Supervisor) and removes them while the
/// supervisor is being polled, for example by another task.
///
/// A supervisor whose last run has ended waits for further runs as long as a handle exists.
///
/// Dropping a handle removes no runs.
pub struct SupervisorHandle<K>(Arc<Shared<K>>);

/// The state that a supervisor and its handles share.
pub(super) struct Shared<K>(Mutex<SharedState<K>>);

pub(super) struct SharedState<K> {
    /// The keys of all runs that have been inserted and have neither ended nor been removed, with
    /// the runs' numbers.
    pub(super) keys: HashMap<K, u64>,
    next_number: u64,
    /// The commands of the handles, which the supervisor has not performed yet.
    pub(super) commands: VecDeque<Command<K>>,
    pub(super) waker: Option<Waker>,
    handles: usize,
    /// Whether the supervisor was dropped.
    is_closed: bool,
}

/// A change of the runs, each of which has a number.
pub(super) enum Command<K> {
    Insert(u64, K, StartFn),
    Remove(u64),
}

impl<K> Shared<K> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(SharedState {
            keys: HashMap::new(),
            next_number: 0,
            commands: VecDeque::new(),
            waker: None,
            handles: 0,
            is_closed: false,
        }))
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&mut SharedState<K>) -> T) -> T {
        f(&mut lock_ignoring_poison(&self.0))
    }

    /// Refuses all later commands, and drops those that have not been performed.
    pub(super) fn close(&self) {
        let commands = self.with(|state| {
            state.is_closed = true;
            state.keys = HashMap::new();
            std::mem::take(&mut state.commands)
        });
        drop(commands);
    }
}

impl<K> SharedState<K> {
    pub(super) fn has_handles(&self) -> bool {
        self.handles > 0
    }
}

impl<K: Hash + Eq + Clone> Shared<K> {
    /// Reserves a key and queues the insertion of its run.
    pub(super) fn insert(&self, key: K, start: StartFn) -> Result<Option<Waker>, Error> {
        // A refused function is dropped without the lock, since it may own a handle.
        let mut start = Some(start);
        self.with(|state| {
            if state.is_closed {
                return Err(Error::new(ErrorKind::Conflict, "the supervisor was dropped"));
            }
            if state.keys.contains_key(&key) {
                let message = "a run with this key is supervised already";
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            let number = state.next_number;
            state.next_number += 1;
            state.keys.insert(key.clone(), number);
            state.commands.extend(start.take().map(|start| Command::Insert(number, key, start)));
            Ok(state.waker.take())
        })
    }

    /// Releases a key and queues the removal of its run. Returns whether there was one.
    pub(super) fn remove(&self, key: &K) -> (bool, Option<Waker>) {
        self.with(|state| {
            let number = state.keys.remove(key);
            state.commands.extend(number.map(Command::Remove));
            (number.is_some(), state.waker.take())
        })
    }

    /// Releases the key of a run that has ended, unless it belongs to a newer run.
    pub(super) fn release(&self, key: &K, number: u64) {
        self.with(|state| {
            if state.keys.get(key) == Some(&number) {
                state.keys.remove(key);
            }
        });
    }
}

impl<K> SupervisorHandle<K> {
    pub(super) fn new(shared: &Arc<Shared<K>>) -> Self {
        shared.with(|state| state.handles += 1);
        Self(Arc::clone(shared))
    }
}

impl<K: Hash + Eq + Clone> SupervisorHandle<K> {
    /// Inserts a run, and wakes the supervisor, which starts it when it is next polled; see
    /// [`Supervisor::insert`](crate::supervise::Supervisor::insert).
    ///
    /// # Errors
    ///
    /// Returns a [`Conflict`](ErrorKind::Conflict) error if a run with this key is supervised, or
    /// if the supervisor was dropped.
    pub fn insert<R: Into<SupervisedStream>>(
        &self,
        key: K,
        mut start: impl FnMut(u32) -> R + Send + 'static,
    ) -> Result<(), Error> {
        let waker = self.0.insert(key, Box::new(move |attempt| start(attempt).into()))?;
        wake(waker);
        Ok(())
    }

    /// Removes a run, and returns whether there was one. The supervisor drops the run when it is
    /// next polled, without reporting its end.
    pub fn remove(&self, key: &K) -> bool {
        let (was_there, waker) = self.0.remove(key);
        wake(waker);
        was_there
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<K> Clone for SupervisorHandle<K> {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl<K> Drop for SupervisorHandle<K> {
    fn drop(&mut self) {
        let waker = self.0.with(|state| {
            state.handles -= 1;
            state.waker.take_if(|_| state.handles == 0)
        });
        wake(waker);
    }
}

impl<K> fmt::Debug for SupervisorHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorHandle").finish_non_exhaustive()
    }
}
