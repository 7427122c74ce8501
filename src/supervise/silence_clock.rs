//! The clock that measures silence.

use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock_ignoring_poison;

/// Measures the time that a supervisor has spent waiting for its runs.
///
/// The time between a wake-up and the next poll does not count, since the runs cannot advance in
/// it. Neither does the time between an event and the next poll.
#[derive(Debug, Default)]
pub(super) struct SilenceClock {
    /// The time spent waiting so far.
    pub(super) waited: Duration,
    /// When the current wait began.
    paused_at: Option<Instant>,
    wake_time: Arc<WakeTime>,
}

/// A waker that records when it was woken first.
#[derive(Debug, Default)]
struct WakeTime(Mutex<(Option<Waker>, Option<Instant>)>);

impl SilenceClock {
    /// Records that the supervisor is polled.
    pub(super) fn resume(&mut self) {
        let woken_at = lock_ignoring_poison(&self.wake_time.0).1.take();
        if let Some(paused_at) = self.paused_at.take() {
            let waited = woken_at.unwrap_or_else(Instant::now).saturating_duration_since(paused_at);
            self.waited = self.waited.saturating_add(waited);
        }
    }

    /// Records that the supervisor waits from now on.
    pub(super) fn pause(&mut self) {
        self.paused_at = Some(Instant::now());
    }

    /// Returns a waker that wakes the task and records the time.
    pub(super) fn waker(&self, cx: &Context<'_>) -> Waker {
        let task = &mut lock_ignoring_poison(&self.wake_time.0).0;
        if !task.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        Waker::from(Arc::clone(&self.wake_time))
    }
}

impl Wake for WakeTime {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let task = {
            let (task, woken_at) = &mut *lock_ignoring_poison(&self.0);
            woken_at.get_or_insert_with(Instant::now);
            task.clone()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}
