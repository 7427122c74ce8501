//! The stream through which the consumer receives the task's items.

use std::fmt;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{FusedStream, StreamExt};
use tokio::runtime::Handle;

use crate::error::Error;
use crate::task::owned_task::OwnedTask;
use crate::task::shared_buffer::{FillBuffer, SharedBuffer};

/// Yields the items of a stream that runs in its own task. Returned by
/// [`in_task`](crate::task::InTaskExt::in_task). Dropping it drops the inner stream, as described
/// there.
#[must_use = "streams do nothing unless polled"]
pub struct InTask<T> {
    buffer: Arc<SharedBuffer<T>>,
    task: OwnedTask,
    /// Whether the task has been spawned.
    is_spawned: bool,
    /// Whether the stream has returned `None`.
    is_terminated: bool,
}

impl<T: Send + 'static> InTask<T> {
    pub(super) fn new<St>(stream: St, n: NonZeroUsize) -> Self
    where
        St: Stream<Item = Result<T, Error>> + Send + 'static,
    {
        let buffer = Arc::new(SharedBuffer::new(n));
        let task = OwnedTask::new(FillBuffer::new(stream.boxed(), Arc::clone(&buffer)));
        Self { buffer, task, is_spawned: false, is_terminated: false }
    }
}

impl<T: Send + 'static> Stream for InTask<T> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.is_terminated {
            return Poll::Ready(None);
        }
        if !this.is_spawned {
            // Without a runtime, this call panics before any state has changed.
            let runtime = Handle::current();
            this.task.spawn_on(&runtime);
            this.is_spawned = true;
        }
        let item = ready!(this.buffer.poll_recv(cx));
        this.is_terminated = item.is_none();
        Poll::Ready(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.buffer.buffered_len(), None)
    }
}

impl<T: Send + 'static> FusedStream for InTask<T> {
    fn is_terminated(&self) -> bool {
        self.is_terminated
    }
}

impl<T> Drop for InTask<T> {
    fn drop(&mut self) {
        self.buffer.close();
        self.task.close();
    }
}

impl<T> fmt::Debug for InTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTask")
            .field("waiting", &self.buffer.buffered_len())
            .field("ended", &self.is_terminated)
            .finish_non_exhaustive()
    }
}
