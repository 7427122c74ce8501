//! Drives a run's observing hooks, which are polled along with the run but do not delay it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::agent::hook::{Hooks, Observer};
use crate::item::Item;
use crate::lock::lock_ignoring_poison;

/// The observing hooks that are running, and the items that such hooks have returned. The lock is
/// never held across a poll: the hooks are taken out before a poll and put back afterwards.
#[derive(Default)]
pub(in crate::agent) struct Observers(Mutex<ObserverQueue>);

#[derive(Default)]
struct ObserverQueue {
    /// The running hooks, in the order in which they started.
    active: Vec<Observer>,
    /// Items that hooks have returned, but that have not been delivered to the model yet.
    notes: Vec<Item>,
    /// The waker from the run's last poll; `None` before the first poll.
    waker: Option<Arc<Waker>>,
    /// Whether the loop is over, in which case no more hooks are started.
    is_closed: bool,
}

impl Observers {
    /// Polls all observing hooks. The run calls this method at the start of each poll.
    #[inline]
    pub(in crate::agent) fn poll(&self, hooks: &Hooks, cx: &mut Context<'_>) {
        // Most agents have no hooks, and this code runs for every event.
        if !hooks.is_empty() {
            self.poll_active(hooks, cx);
        }
    }

    fn poll_active(&self, hooks: &Hooks, cx: &mut Context<'_>) {
        let mut active = self.take_active(cx.waker());
        if active.is_empty() {
            return;
        }
        active.retain_mut(|observer| self.poll_observer(hooks, observer, cx));
        self.put_back(active).into_iter().for_each(cancel_ignoring_panic);
    }

    /// Starts observing hooks. Each hook is polled once before the next one starts.
    pub(in crate::agent) fn start(&self, hooks: &Hooks, observers: impl Iterator<Item = Observer>) {
        let Some(waker) = self.waker() else { return };
        let mut cx = Context::from_waker(&waker);
        for mut observer in observers {
            if self.poll_observer(hooks, &mut observer, &mut cx) {
                self.add(observer).into_iter().for_each(cancel_ignoring_panic);
            }
        }
    }

    /// Polls an observing hook, and returns whether the hook is still running.
    fn poll_observer(&self, hooks: &Hooks, observer: &mut Observer, cx: &mut Context<'_>) -> bool {
        match observer.poll(cx) {
            Poll::Pending => return true,
            Poll::Ready(Ok(notes)) => self.push_notes(notes),
            Poll::Ready(Err(error)) => hooks.on_failure(observer.state(), &error),
        }
        false
    }

    /// Drops the running hooks once the loop is over.
    pub(in crate::agent) fn cancel_all(&self, hooks: &Hooks) {
        for mut observer in self.close() {
            if let Err(error) = observer.cancel() {
                hooks.on_failure(observer.state(), &error);
            }
        }
    }

    /// Drops the running hooks when the run is dropped. No error is reported to any hook.
    pub(in crate::agent) fn drop_all(&self) {
        self.close().into_iter().for_each(cancel_ignoring_panic);
    }

    /// Removes and returns the running hooks. Hooks that start after this call use `waker`.
    fn take_active(&self, waker: &Waker) -> Vec<Observer> {
        let mut inner = self.lock();
        let active = std::mem::take(&mut inner.active);
        let is_known = inner.waker.as_ref().is_some_and(|known| known.will_wake(waker));
        drop(inner);
        if !is_known {
            let waker = Arc::new(waker.clone());
            let before = self.lock().waker.replace(waker);
            drop(before);
        }
        active
    }

    /// Returns the waker for new hooks, or `None` if no hooks may start.
    fn waker(&self) -> Option<Arc<Waker>> {
        let inner = self.lock();
        inner.waker.clone().filter(|_| !inner.is_closed)
    }

    /// Puts back the hooks that are still running, in front of the hooks that have started in the
    /// meantime. If the loop is over, returns the running hooks instead.
    fn put_back(&self, active: Vec<Observer>) -> Vec<Observer> {
        let mut inner = self.lock();
        if inner.is_closed {
            return active;
        }
        let begun = std::mem::replace(&mut inner.active, active);
        inner.active.extend(begun);
        Vec::new()
    }

    /// Adds a hook that has started. If the loop is over, returns the hook instead.
    fn add(&self, observer: Observer) -> Option<Observer> {
        let mut inner = self.lock();
        if inner.is_closed {
            return Some(observer);
        }
        inner.active.push(observer);
        None
    }

    /// Adds items that a hook has returned to the list of undelivered items.
    fn push_notes(&self, notes: Vec<Item>) {
        self.lock().notes.extend(notes);
    }

    /// Removes and returns the items that observing hooks have returned and that have not been
    /// delivered yet.
    pub(in crate::agent) fn take_notes(&self) -> Vec<Item> {
        std::mem::take(&mut self.lock().notes)
    }

    /// Removes and returns all running hooks. No more hooks are started afterwards.
    fn close(&self) -> Vec<Observer> {
        let mut inner = self.lock();
        inner.is_closed = true;
        let (active, waker) = (std::mem::take(&mut inner.active), inner.waker.take());
        drop(inner);
        drop(waker);
        active
    }

    fn lock(&self) -> MutexGuard<'_, ObserverQueue> {
        // No user code runs while the lock is held.
        lock_ignoring_poison(&self.0)
    }
}

/// Drops a hook's future, ignoring any panic that this causes.
fn cancel_ignoring_panic(mut observer: Observer) {
    let _ = observer.cancel();
}
