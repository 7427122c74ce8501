//! A deadline that uses a timer only while a task is waiting for it.

use std::fmt;
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll, Waker, ready};

use tokio::time::{Instant, Sleep};

/// A timer whose deadline can be changed cheaply. The underlying tokio timer is created at the
/// first wait, and is reset only if it fires too early or the deadline is moved to an earlier time.
#[derive(Default)]
pub(super) struct ResettableTimer(Option<ArmedTimer>);

struct ArmedTimer {
    sleep: Pin<Box<Sleep>>,
    /// The addresses that identify the waker of the last poll. The timer holds a clone of the
    /// waker, so no other task's waker has the same addresses. The clone itself cannot be compared
    /// instead, because it may have a different vtable.
    waker: (usize, usize),
}

fn waker_addresses(waker: &Waker) -> (usize, usize) {
    (waker.data() as usize, ptr::from_ref(waker.vtable()) as usize)
}

impl ResettableTimer {
    /// Returns `Ready` once the deadline `at` has passed; a deadline of `None` never passes. `now`
    /// is the current time.
    pub(super) fn poll(
        &mut self,
        at: Option<Instant>,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let Some(at) = at else { return Poll::Pending };
        // The deadline is checked before the timer, because tokio's cooperative budget may keep the
        // timer from firing in this poll.
        if now >= at {
            return Poll::Ready(());
        }
        let timer = self.0.get_or_insert_with(|| ArmedTimer {
            sleep: Box::pin(tokio::time::sleep_until(at)),
            waker: (0, 0),
        });
        // If the deadline has moved to a later time, the timer is reset only when it fires.
        let fires_at = timer.sleep.deadline();
        let waker = waker_addresses(cx.waker());
        if fires_at > at {
            timer.sleep.as_mut().reset(at);
        } else if now < fires_at && timer.waker == waker {
            return Poll::Pending;
        }
        timer.waker = waker;
        loop {
            ready!(timer.sleep.as_mut().poll(cx));
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            timer.sleep.as_mut().reset(at);
        }
    }
}

impl fmt::Debug for ResettableTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResettableTimer").field("waiting", &self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(timer: &mut ResettableTimer, at: Instant, task: &Arc<WakeCounter>) -> Poll<()> {
        let waker = Waker::from(Arc::clone(task));
        timer.poll(Some(at), Instant::now(), &mut Context::from_waker(&waker))
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_polling_task_is_woken_when_the_timer_fires() {
        let (first, second) = (Arc::<WakeCounter>::default(), Arc::<WakeCounter>::default());
        let mut timer = ResettableTimer::default();
        let at = Instant::now() + SECOND;
        for task in [&first, &first, &second, &second] {
            assert!(poll(&mut timer, at, task).is_pending());
        }
        tokio::time::sleep_until(at).await;
        let woken = [&first, &second].map(|task| task.0.load(Ordering::Relaxed));
        assert_eq!(woken, [0, 1]);
        assert!(poll(&mut timer, at, &second).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn a_postponed_timer_is_reset_when_it_fires() {
        let task = Arc::<WakeCounter>::default();
        let mut timer = ResettableTimer::default();
        let began = Instant::now();
        assert!(poll(&mut timer, began + SECOND, &task).is_pending());
        assert!(poll(&mut timer, began + 3 * SECOND, &task).is_pending());
        tokio::time::sleep_until(began + SECOND).await;
        assert!(poll(&mut timer, began + 3 * SECOND, &task).is_pending());
        // An earlier deadline is set immediately.
        assert!(poll(&mut timer, began + 2 * SECOND, &task).is_pending());
        tokio::time::sleep_until(began + 2 * SECOND).await;
        assert_eq!(task.0.load(Ordering::Relaxed), 2);
        assert!(poll(&mut timer, began + 2 * SECOND, &task).is_ready());
    }
}
