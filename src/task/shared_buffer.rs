//! What the task and the consumer share.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::stream::{BoxStream, StreamExt};
use futures::task::AtomicWaker;

use crate::error::{Error, ErrorKind, catch_panic};
use crate::lock::lock_ignoring_poison;

/// So many items in a row, then other tasks have their turn.
const MAX_ITEMS_PER_POLL: usize = 64;

/// The stream and the items it is ahead by. Nothing of a user runs while the lock is held: the
/// stream is taken out to be polled or dropped.
pub(super) struct SharedBuffer<T> {
    state: Mutex<BufferState<T>>,
    capacity: usize,
    /// Woken by an item and by the end.
    consumer_waker: AtomicWaker,
    /// Woken by room, and when nobody wants more.
    task_waker: AtomicWaker,
}

struct BufferState<T> {
    buffered: VecDeque<Result<T, Error>>,
    source: SourceState<T>,
}

type SourceStream<T> = BoxStream<'static, Result<T, Error>>;

enum SourceState<T> {
    /// The stream, between two polls.
    Idle(SourceStream<T>),
    /// The task has the stream, and polls it.
    Polling,
    /// Nothing more comes, or nothing more is wanted.
    Done,
}

impl<T> SharedBuffer<T> {
    pub(super) fn new(stream: SourceStream<T>, room: NonZeroUsize) -> Self {
        let state = BufferState { buffered: VecDeque::new(), source: SourceState::Idle(stream) };
        let (consumer, task) = (AtomicWaker::new(), AtomicWaker::new());
        Self {
            state: Mutex::new(state),
            capacity: room.get(),
            consumer_waker: consumer,
            task_waker: task,
        }
    }

    pub(super) fn buffered_len(&self) -> usize {
        self.with_state(|state| state.buffered.len())
    }

    /// The next item, for the consumer.
    pub(super) fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        self.consumer_waker.register(cx.waker());
        let (item, was_full) = self.with_state(|state| {
            let was_full = state.buffered.len() >= self.capacity;
            let item = match (state.buffered.pop_front(), &state.source) {
                (Some(item), _) => Poll::Ready(Some(item)),
                (None, SourceState::Done) => Poll::Ready(None),
                (None, SourceState::Idle(_) | SourceState::Polling) => Poll::Pending,
            };
            (item, was_full)
        });
        if was_full {
            self.task_waker.wake();
        }
        item
    }

    /// Nobody wants more: drops the stream and what waits, in this call where the stream is here.
    pub(super) fn close(&self) {
        let unwanted = self.with_state(|state| {
            (
                std::mem::take(&mut state.buffered),
                std::mem::replace(&mut state.source, SourceState::Done),
            )
        });
        // The task sees that it is over, and ends. First, since a `Drop` may panic.
        self.task_waker.wake();
        drop(unwanted);
    }

    /// Drives the stream while there is room. Ready when it is over.
    fn poll_drive(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.task_waker.register(cx.waker());
        for _ in 0..MAX_ITEMS_PER_POLL {
            let taken = self.with_state(|state| match &state.source {
                SourceState::Done => Poll::Ready(None),
                SourceState::Polling => Poll::Pending,
                SourceState::Idle(_) if state.buffered.len() >= self.capacity => Poll::Pending,
                SourceState::Idle(_) => Poll::Ready(
                    std::mem::replace(&mut state.source, SourceState::Polling).into_stream(),
                ),
            });
            let mut stream = match taken {
                Poll::Ready(Some(stream)) => stream,
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            };
            let polled = catch_panic(|| stream.poll_next_unpin(cx));
            match polled {
                Ok(Poll::Pending) => {
                    self.put_back(stream, None);
                    return Poll::Pending;
                }
                Ok(Poll::Ready(Some(item))) => self.put_back(stream, Some(item)),
                Ok(Poll::Ready(None)) => {
                    self.finish(Some(stream), None);
                    return Poll::Ready(());
                }
                Err(message) => {
                    self.finish(Some(stream), Some(Error::from_panic("the stream", &message)));
                    return Poll::Ready(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Puts the stream back behind a poll, and hands over what it gave. Where nobody wants it any
    /// more, both are dropped.
    fn put_back(&self, stream: SourceStream<T>, item: Option<Result<T, Error>>) {
        let came = item.is_some();
        let unwanted = self.with_state(|state| match state.source {
            SourceState::Done => Some((stream, item)),
            SourceState::Idle(_) | SourceState::Polling => {
                state.source = SourceState::Idle(stream);
                state.buffered.extend(item);
                None
            }
        });
        drop(unwanted);
        if came {
            self.consumer_waker.wake();
        }
    }

    /// Drops the stream, and ends behind `error`.
    fn finish(&self, stream: Option<SourceStream<T>>, error: Option<Error>) {
        // A panic in a `Drop` is no reason to keep the consumer waiting.
        let _ = catch_panic(|| drop(stream));
        self.with_state(|state| {
            if !matches!(state.source, SourceState::Done) {
                state.source = SourceState::Done;
                state.buffered.extend(error.map(Err));
            }
        });
        self.consumer_waker.wake();
    }

    fn with_state<R>(&self, f: impl FnOnce(&mut BufferState<T>) -> R) -> R {
        f(&mut lock_ignoring_poison(&self.state))
    }
}

impl<T> SourceState<T> {
    fn into_stream(self) -> Option<SourceStream<T>> {
        match self {
            Self::Idle(stream) => Some(stream),
            Self::Polling | Self::Done => None,
        }
    }
}

/// The task.
pub(super) struct DriveTask<T>(pub(super) Arc<SharedBuffer<T>>);

impl<T> Future for DriveTask<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_drive(cx)
    }
}

impl<T> Drop for DriveTask<T> {
    fn drop(&mut self) {
        // Still there only if the runtime gave up the task.
        let left = self.0.with_state(|state| match state.source {
            SourceState::Done => None,
            SourceState::Idle(_) | SourceState::Polling => {
                Some(std::mem::replace(&mut state.source, SourceState::Polling).into_stream())
            }
        });
        if let Some(stream) = left {
            let message = "the runtime ended before the stream";
            self.0.finish(stream, Some(Error::new(ErrorKind::Other, message)));
        }
    }
}
