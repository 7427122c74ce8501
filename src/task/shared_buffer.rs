//! The buffer shared by the task and the consumer.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::stream::{BoxStream, StreamExt};
use futures::task::AtomicWaker;

use crate::error::{Error, ErrorKind, catch_panic};
use crate::lock::lock_ignoring_poison;

/// The number of consecutive items after which the task yields to other tasks.
const MAX_ITEMS_PER_POLL: usize = 64;

/// The items that the task has received from the stream, but that the consumer has not received
/// yet. No user code runs while the lock is held.
pub(super) struct SharedBuffer<T> {
    state: Mutex<BufferState<T>>,
    capacity: usize,
    /// Wakes the consumer when an item is added or when the buffer ends.
    consumer_waker: AtomicWaker,
    /// Wakes the task when the buffer has free capacity again.
    task_waker: AtomicWaker,
}

struct BufferState<T> {
    buffered: VecDeque<Result<T, Error>>,
    /// Whether the last item has been added or the consumer has been dropped.
    has_ended: bool,
}

impl<T> SharedBuffer<T> {
    pub(super) fn new(capacity: NonZeroUsize) -> Self {
        let state = BufferState { buffered: VecDeque::new(), has_ended: false };
        Self {
            state: Mutex::new(state),
            capacity: capacity.get(),
            consumer_waker: AtomicWaker::new(),
            task_waker: AtomicWaker::new(),
        }
    }

    pub(super) fn buffered_len(&self) -> usize {
        self.with_state(|state| state.buffered.len())
    }

    /// Polls for the next item on behalf of the consumer.
    pub(super) fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        self.consumer_waker.register(cx.waker());
        let (item, was_full) = self.with_state(|state| {
            let was_full = state.buffered.len() >= self.capacity;
            let item = match state.buffered.pop_front() {
                Some(item) => Poll::Ready(Some(item)),
                None if state.has_ended => Poll::Ready(None),
                None => Poll::Pending,
            };
            (item, was_full)
        });
        if was_full {
            self.task_waker.wake();
        }
        item
    }

    /// Closes the buffer when the consumer is dropped, and drops the buffered items.
    pub(super) fn close(&self) {
        let unwanted = self.with_state(|state| {
            state.has_ended = true;
            std::mem::take(&mut state.buffered)
        });
        drop(unwanted);
    }

    fn has_room(&self) -> bool {
        self.with_state(|state| state.buffered.len() < self.capacity)
    }

    /// Adds an item. If the consumer has been dropped, returns the item as the error.
    fn push(&self, item: Result<T, Error>) -> Result<(), Result<T, Error>> {
        self.with_state(|state| {
            if state.has_ended {
                return Err(item);
            }
            state.buffered.push_back(item);
            Ok(())
        })?;
        self.consumer_waker.wake();
        Ok(())
    }

    /// Marks the buffer as ended. If `error` is `Some`, the error becomes the last item.
    fn end(&self, error: Option<Error>) {
        self.with_state(|state| {
            if !std::mem::replace(&mut state.has_ended, true) {
                state.buffered.extend(error.map(Err));
            }
        });
        self.consumer_waker.wake();
    }

    fn with_state<R>(&self, f: impl FnOnce(&mut BufferState<T>) -> R) -> R {
        f(&mut lock_ignoring_poison(&self.state))
    }
}

/// A future that reads the stream and fills the buffer.
pub(super) struct FillBuffer<T> {
    /// The stream, or `None` once the stream has ended.
    stream: Option<BoxStream<'static, Result<T, Error>>>,
    buffer: Arc<SharedBuffer<T>>,
}

impl<T> FillBuffer<T> {
    pub(super) fn new(
        stream: BoxStream<'static, Result<T, Error>>,
        buffer: Arc<SharedBuffer<T>>,
    ) -> Self {
        Self { stream: Some(stream), buffer }
    }

    /// Drops the stream, and marks the buffer as ended. If `error` is `Some`, the error becomes the
    /// last item.
    fn finish(&mut self, error: Option<Error>) {
        let stream = self.stream.take();
        // A panic in a `Drop` implementation must not leave the consumer waiting.
        let _ = catch_panic(|| drop(stream));
        self.buffer.end(error);
    }
}

impl<T> Future for FillBuffer<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.buffer.task_waker.register(cx.waker());
        for _ in 0..MAX_ITEMS_PER_POLL {
            let Some(stream) = &mut this.stream else { return Poll::Ready(()) };
            if !this.buffer.has_room() {
                return Poll::Pending;
            }
            match catch_panic(|| stream.poll_next_unpin(cx)) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(Some(item))) => {
                    if this.buffer.push(item).is_err() {
                        this.finish(None);
                    }
                }
                Ok(Poll::Ready(None)) => this.finish(None),
                Err(message) => this.finish(Some(Error::from_panic("the stream", &message))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<T> Drop for FillBuffer<T> {
    fn drop(&mut self) {
        // The stream is still present only if the runtime ended or the consumer was dropped.
        if self.stream.is_some() {
            let message = "the runtime ended before the stream";
            self.finish(Some(Error::new(ErrorKind::Other, message)));
        }
    }
}
