//! Records what the models and tools of a run really did, across all runs and attempts.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use crate::axes::Cause;

/// Clones share the same record.
#[derive(Clone, Default)]
pub(crate) struct Probe(Arc<Mutex<ProbeLog>>);

#[derive(Default)]
pub(crate) struct ProbeLog {
    /// The calls of complete turns, by their path: `c1` or `c1/c2`, with the names of their tools.
    pub(crate) made: BTreeMap<String, String>,
    pub(crate) calls: BTreeMap<String, CallLog>,
    /// The number of turns of the outermost agent that are streaming.
    pub(crate) open_turns: usize,
    /// The number of writes in progress.
    pub(crate) writes: usize,
    /// The cause that strikes as soon as its victim runs.
    pub(crate) fault: Option<Cause>,
    pub(crate) violations: Vec<String>,
    requests: usize,
}

/// How often a call's tool began, ended, and runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CallLog {
    pub(crate) begun: usize,
    pub(crate) ended: usize,
    pub(crate) running: usize,
    pub(crate) is_elsewhere: bool,
}

impl Probe {
    pub(crate) fn log(&self) -> MutexGuard<'_, ProbeLog> {
        // A tool's panic does not happen while the lock is held.
        self.0.lock().unwrap()
    }

    /// Forgets everything, so that the agents with this probe can be used again.
    pub(crate) fn clear(&self) {
        *self.log() = ProbeLog::default();
    }

    /// A number for the next request, which makes the ids of its calls unique.
    pub(crate) fn next_request(&self) -> usize {
        let mut log = self.log();
        log.requests += 1;
        log.requests
    }

    /// Whether this cause strikes now. It strikes once.
    pub(crate) fn take_fault(&self, cause: Cause) -> bool {
        self.log().fault.take_if(|fault| *fault == cause).is_some()
    }

    /// Records that a call's tool begins, and runs until the guard is dropped.
    pub(crate) fn begin(&self, path: &str, is_elsewhere: bool) -> Running {
        let mut log = self.log();
        let call = log.calls.entry(path.to_owned()).or_default();
        call.begun += 1;
        call.running += 1;
        call.is_elsewhere = is_elsewhere;
        Running { probe: self.clone(), path: path.to_owned() }
    }

    pub(crate) fn end(&self, path: &str) {
        self.log().calls.entry(path.to_owned()).or_default().ended += 1;
    }

    pub(crate) fn call(&self, path: &str) -> CallLog {
        self.log().calls.get(path).copied().unwrap_or_default()
    }

    /// Counts a turn as streaming until the guard is dropped.
    pub(crate) fn open_turn(&self, is_outermost: bool) -> Counted {
        Counted::new(self, is_outermost, |log| &mut log.open_turns)
    }

    /// Counts a write as being in progress until the guard is dropped.
    pub(crate) fn open_write(&self) -> Counted {
        Counted::new(self, true, |log| &mut log.writes)
    }
}

/// A tool that runs.
pub(crate) struct Running {
    probe: Probe,
    path: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.probe.log().calls.get_mut(&self.path).unwrap().running -= 1;
    }
}

/// Counts in a field of the log until it is dropped.
pub(crate) struct Counted {
    probe: Option<Probe>,
    field: fn(&mut ProbeLog) -> &mut usize,
}

impl Counted {
    fn new(probe: &Probe, counts: bool, field: fn(&mut ProbeLog) -> &mut usize) -> Self {
        let probe = counts.then(|| probe.clone());
        if let Some(probe) = &probe {
            *field(&mut probe.log()) += 1;
        }
        Self { probe, field }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(probe) = &self.probe {
            *(self.field)(&mut probe.log()) -= 1;
        }
    }
}

/// Returns `Pending` once, so that a run can be interrupted here.
pub(crate) fn pause() -> Pause {
    Pause { is_over: false }
}

pub(crate) struct Pause {
    is_over: bool,
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.is_over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
