//! A future that runs in its own task and that its owner can drop at any time.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use tokio::runtime::Handle;

use crate::error::catch_panic;
use crate::lock::lock_ignoring_poison;

/// Owns a future that is polled in its own task. Dropping the `OwnedTask` drops the future
/// synchronously. If another thread is currently polling the future, it is dropped as soon as that
/// poll returns.
///
/// The future is also dropped if it panics or if the runtime ends.
///
/// ```
/// use tokio::runtime::Handle;
/// use tokio::sync::oneshot;
/// use turnstream::task::OwnedTask;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (alive, dropped) = oneshot::channel::<()>();
/// let beat = async move {
///     let _alive = alive;
///     std::future::pending().await
/// };
/// let task = OwnedTask::spawn(beat, &Handle::current());
/// drop(task);
/// assert!(dropped.await.is_err());
/// # }
/// ```
#[must_use = "dropping the task drops its future"]
pub struct OwnedTask(Arc<TaskCell>);

impl_debug!(OwnedTask);

struct TaskCell {
    /// The future's state. No user code runs while the lock is held, because the future is always
    /// taken out of this field before it is polled or dropped.
    state: Mutex<TaskState>,
    /// Wakes the task after the future has been dropped, so that the task ends.
    task_waker: AtomicWaker,
}

enum TaskState {
    /// The future is stored here between two polls.
    Idle(BoxFuture<'static, ()>),
    /// The task has taken the future and is polling it.
    Polling,
    /// The future has completed or has been dropped.
    Done,
}

impl OwnedTask {
    /// Spawns a task that polls the future on `runtime`. The caller need not be inside of a
    /// runtime.
    pub fn spawn(future: impl Future<Output = ()> + Send + 'static, runtime: &Handle) -> Self {
        let task = Self::new(future);
        task.spawn_on(runtime);
        task
    }

    /// Wraps a future that has not been polled yet.
    pub(crate) fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        let state = Mutex::new(TaskState::Idle(future.boxed()));
        Self(Arc::new(TaskCell { state, task_waker: AtomicWaker::new() }))
    }

    /// Spawns the task that polls the future. This method must be called only once.
    pub(crate) fn spawn_on(&self, runtime: &Handle) {
        runtime.spawn(PollTask(Arc::clone(&self.0)));
    }

    /// Drops the future unless it has already completed.
    pub(crate) fn close(&self) {
        let future = self.0.replace(TaskState::Done);
        // The task is woken so that it sees the new state and ends. The task is woken before the
        // future is dropped, because the drop may panic.
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

    /// Takes the future out of the state in order to poll it. Returns `None` if the state does not
    /// contain the future.
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

    /// Puts the future back after a poll. If the task was closed during the poll, drops the future
    /// rather than putting it back.
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

/// The task that polls the future.
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
                // A panic in a `Drop` implementation does not affect other code here.
                let _ = catch_panic(|| drop(future));
                Poll::Ready(())
            }
        }
    }
}

impl Drop for PollTask {
    fn drop(&mut self) {
        // The future is still present only if the runtime dropped the task.
        let future = self.0.replace(TaskState::Done);
        let _ = catch_panic(|| drop(future));
    }
}
