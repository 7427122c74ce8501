//! The hooks that observe a run: they are part of it, are polled with it, and hold up nothing.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::agent::hook::{Hooks, Observer};
use crate::item::Item;
use crate::lock::lock_ignoring_poison;

/// What observing hooks have begun, and what they want said. Its lock is never held across a poll:
/// a poll takes them out and puts them back.
#[derive(Default)]
pub(super) struct Observers(Mutex<ObserverQueue>);

#[derive(Default)]
struct ObserverQueue {
    /// In the order in which they began.
    active: Vec<Observer>,
    /// What they want said, while it is not said.
    notes: Vec<Item>,
    /// The waker of the run's last poll. `None` before the first one.
    waker: Option<Arc<Waker>>,
    /// The loop is over, and nothing begins any more.
    is_closed: bool,
}

impl Observers {
    /// Polls all hooks that observe. It is the first thing that a poll of the run does.
    #[inline]
    pub(super) fn poll(&self, hooks: &Hooks, cx: &mut Context<'_>) {
        // Most agents have no hooks, and this is done for each event.
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

    /// Begins to observe: each is polled once, before the next one begins.
    pub(super) fn start(&self, hooks: &Hooks, observers: impl Iterator<Item = Observer>) {
        let Some(waker) = self.waker() else { return };
        let mut cx = Context::from_waker(&waker);
        for mut observer in observers {
            if self.poll_observer(hooks, &mut observer, &mut cx) {
                self.add(observer).into_iter().for_each(cancel_ignoring_panic);
            }
        }
    }

    /// Polls one. Tells whether it goes on.
    fn poll_observer(&self, hooks: &Hooks, observer: &mut Observer, cx: &mut Context<'_>) -> bool {
        match observer.poll(cx) {
            Poll::Pending => return true,
            Poll::Ready(Ok(notes)) => self.push_notes(notes),
            Poll::Ready(Err(error)) => hooks.on_failure(observer.state(), &error),
        }
        false
    }

    /// Drops what still observes when the loop is over.
    pub(super) fn cancel_all(&self, hooks: &Hooks) {
        for mut observer in self.close() {
            if let Err(error) = observer.cancel() {
                hooks.on_failure(observer.state(), &error);
            }
        }
    }

    /// Drops what still observes when the run is dropped. No hook is told.
    pub(super) fn drop_all(&self) {
        self.close().into_iter().for_each(cancel_ignoring_panic);
    }

    /// Takes out those that go on. What begins from here on wakes with `waker`.
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

    /// `None` if nothing may begin.
    fn waker(&self) -> Option<Arc<Waker>> {
        let inner = self.lock();
        inner.waker.clone().filter(|_| !inner.is_closed)
    }

    /// Keeps those that go on, before those that have begun meanwhile. Gives them back if the loop is
    /// over.
    fn put_back(&self, active: Vec<Observer>) -> Vec<Observer> {
        let mut inner = self.lock();
        if inner.is_closed {
            return active;
        }
        let begun = std::mem::replace(&mut inner.active, active);
        inner.active.extend(begun);
        Vec::new()
    }

    /// Keeps one that has begun. Gives it back if the loop is over.
    fn add(&self, observer: Observer) -> Option<Observer> {
        let mut inner = self.lock();
        if inner.is_closed {
            return Some(observer);
        }
        inner.active.push(observer);
        None
    }

    /// Keeps what is to be said.
    fn push_notes(&self, notes: Vec<Item>) {
        self.lock().notes.extend(notes);
    }

    /// What is to be said next.
    pub(super) fn take_notes(&self) -> Vec<Item> {
        std::mem::take(&mut self.lock().notes)
    }

    /// Takes all of them out; nothing begins any more.
    fn close(&self) -> Vec<Observer> {
        let mut inner = self.lock();
        inner.is_closed = true;
        let (active, waker) = (std::mem::take(&mut inner.active), inner.waker.take());
        drop(inner);
        drop(waker);
        active
    }

    fn lock(&self) -> MutexGuard<'_, ObserverQueue> {
        // Nothing of a user runs while the lock is held.
        lock_ignoring_poison(&self.0)
    }
}

/// Drops a hook's future; a panic in it is not told.
fn cancel_ignoring_panic(mut observer: Observer) {
    let _ = observer.cancel();
}
