//! A future in a task of its own that its owner can drop at any time.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use tokio::runtime::Handle;

use crate::error::catch_panic;
use crate::lock::lock_ignoring_poison;

/// A future that a task polls. Dropping this drops the future synchronously. If another thread is polling it at
/// that moment, it is dropped when the poll returns.
///
/// A panic in the future drops it, and so does the end of the runtime.
pub(crate) struct OwnedTask(Arc<TaskCell>);

struct TaskCell {
    /// Nothing of a user runs while the lock is held: the future is taken out to be polled or dropped.
    state: Mutex<TaskState>,
    /// Woken when the future was dropped, so that the task ends.
    task_waker: AtomicWaker,
}

enum TaskState {
    /// The future, between two polls.
    Idle(BoxFuture<'static, ()>),
    /// The task has the future, and polls it.
    Polling,
    /// It is over, or was dropped.
    Done,
}

impl OwnedTask {
    /// A future that nothing polls yet.
    pub(crate) fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        let state = Mutex::new(TaskState::Idle(future.boxed()));
        Self(Arc::new(TaskCell { state, task_waker: AtomicWaker::new() }))
    }

    /// Has a task of the runtime poll the future. Call it once.
    pub(crate) fn spawn_on(&self, runtime: &Handle) {
        runtime.spawn(PollTask(Arc::clone(&self.0)));
    }

    /// Drops the future, unless it is over.
    pub(crate) fn close(&self) {
        let future = self.0.replace(TaskState::Done);
        // The task sees that it is over, and ends. First, since a `Drop` may panic.
        self.0.task_waker.wake();
        drop(future);
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.close();
    }
}

impl TaskCell {
    fn replace(&self, state: TaskState) -> TaskState {
        std::mem::replace(&mut *lock_ignoring_poison(&self.state), state)
    }

    /// Takes the future out to be polled; `None` if it is not here.
    fn take(&self) -> Option<BoxFuture<'static, ()>> {
        let mut state = lock_ignoring_poison(&self.state);
        match std::mem::replace(&mut *state, TaskState::Polling) {
            TaskState::Idle(future) => Some(future),
            TaskState::Polling => None,
            TaskState::Done => {
                *state = TaskState::Done;
                None
            }
        }
    }

    /// Puts the future back after a poll. Where it is not wanted any more, it is dropped.
    fn put_back(&self, future: BoxFuture<'static, ()>) -> Poll<()> {
        let mut state = lock_ignoring_poison(&self.state);
        if let TaskState::Done = *state {
            drop(state);
            drop(future);
            return Poll::Ready(());
        }
        *state = TaskState::Idle(future);
        Poll::Pending
    }
}

/// The task.
struct PollTask(Arc<TaskCell>);

impl Future for PollTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.task_waker.register(cx.waker());
        let Some(mut future) = self.0.take() else { return Poll::Ready(()) };
        match catch_panic(|| future.poll_unpin(cx)) {
            Ok(Poll::Pending) => self.0.put_back(future),
            Ok(Poll::Ready(())) | Err(_) => {
                self.0.replace(TaskState::Done);
                // A panic in a `Drop` concerns nobody here.
                let _ = catch_panic(|| drop(future));
                Poll::Ready(())
            }
        }
    }
}

impl Drop for PollTask {
    fn drop(&mut self) {
        // Still there only if the runtime gave up the task.
        let future = self.0.replace(TaskState::Done);
        let _ = catch_panic(|| drop(future));
    }
}
