//! The place of a run among the streams of a supervisor.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;

use crate::error::catch_panic;
use crate::lock::lock_ignoring_poison;
use crate::supervise::Supervised;
use crate::supervise::restarting_run::RestartingRun;

/// The place of a run, from which the run can be removed while it is among other streams.
///
/// Only the supervisor locks the place, so it never waits for the lock.
#[derive(Clone, Debug)]
pub(super) struct Slot(Arc<Mutex<SlotState>>);

#[derive(Debug)]
struct SlotState {
    /// The run, or `None` once it was removed.
    run: Option<RestartingRun>,
    /// The waker of the last poll that returned `Pending`.
    waker: Option<Waker>,
}

impl Slot {
    pub(super) fn new(run: RestartingRun) -> Self {
        Self(Arc::new(Mutex::new(SlotState { run: Some(run), waker: None })))
    }

    /// Drops the run, and wakes the stream of this place so that it ends.
    pub(super) fn clear(&self) {
        let (run, waker) = {
            let mut state = self.lock();
            (state.run.take(), state.waker.take())
        };
        // A user's `Drop` implementation runs without the lock.
        let _ = catch_panic(|| drop(run));
        wake(waker);
    }

    /// Ends the run because it was silent for `waited`.
    pub(super) fn end_silent(&self, waited: Duration) {
        let waker = {
            let mut state = self.lock();
            if let Some(run) = &mut state.run {
                run.end_silent(waited);
            }
            state.waker.take()
        };
        wake(waker);
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        lock_ignoring_poison(&self.0)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The stream of a [`Slot`]: the reports about its run, each with the run's number.
pub(super) struct SlotStream {
    pub(super) number: u64,
    pub(super) slot: Slot,
}

impl Stream for SlotStream {
    type Item = (u64, Supervised);

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.slot.lock();
        let Some(run) = &mut state.run else { return Poll::Ready(None) };
        let polled = run.poll_next(cx);
        match &polled {
            Poll::Pending if !state.waker.as_ref().is_some_and(|it| it.will_wake(cx.waker())) => {
                state.waker = Some(cx.waker().clone());
            }
            Poll::Ready(Some(Supervised::Ended(_))) => state.run = None,
            Poll::Pending | Poll::Ready(_) => {}
        }
        polled.map(|report| report.map(|report| (self.number, report)))
    }
}
