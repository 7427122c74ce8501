//! What the task and the consumer share.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::stream::{BoxStream, StreamExt};
use futures::task::AtomicWaker;

use crate::error::{Error, ErrorKind, catch_panic};
use crate::lock::lock;

/// So many items in a row, then other tasks have their turn.
const ITEMS_A_POLL: usize = 64;

/// The stream and the items it is ahead by. Nothing of a user runs while the lock is held: the
/// stream is taken out to be polled or dropped.
pub(super) struct Relay<T> {
    state: Mutex<State<T>>,
    room: usize,
    /// Woken by an item and by the end.
    consumer: AtomicWaker,
    /// Woken by room, and when nobody wants more.
    task: AtomicWaker,
}

struct State<T> {
    waiting: VecDeque<Result<T, Error>>,
    work: Work<T>,
}

type Source<T> = BoxStream<'static, Result<T, Error>>;

enum Work<T> {
    /// The stream, between two polls.
    Resting(Source<T>),
    /// The task has the stream, and polls it.
    Polled,
    /// Nothing more comes, or nothing more is wanted.
    Over,
}

impl<T> Relay<T> {
    pub(super) fn new(stream: Source<T>, room: NonZeroUsize) -> Self {
        let state = State { waiting: VecDeque::new(), work: Work::Resting(stream) };
        let (consumer, task) = (AtomicWaker::new(), AtomicWaker::new());
        Self { state: Mutex::new(state), room: room.get(), consumer, task }
    }

    pub(super) fn waiting(&self) -> usize {
        self.with(|state| state.waiting.len())
    }

    /// The next item, for the consumer.
    pub(super) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        self.consumer.register(cx.waker());
        let (item, was_full) = self.with(|state| {
            let was_full = state.waiting.len() >= self.room;
            let item = match (state.waiting.pop_front(), &state.work) {
                (Some(item), _) => Poll::Ready(Some(item)),
                (None, Work::Over) => Poll::Ready(None),
                (None, Work::Resting(_) | Work::Polled) => Poll::Pending,
            };
            (item, was_full)
        });
        if was_full {
            self.task.wake();
        }
        item
    }

    /// Nobody wants more: drops the stream and what waits, in this call where the stream is here.
    pub(super) fn close(&self) {
        let unwanted = self.with(|state| {
            (std::mem::take(&mut state.waiting), std::mem::replace(&mut state.work, Work::Over))
        });
        // The task sees that it is over, and ends. First, since a `Drop` may panic.
        self.task.wake();
        drop(unwanted);
    }

    /// Drives the stream while there is room. Ready when it is over.
    fn poll_drive(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.task.register(cx.waker());
        for _ in 0..ITEMS_A_POLL {
            let taken = self.with(|state| match &state.work {
                Work::Over => Poll::Ready(None),
                Work::Polled => Poll::Pending,
                Work::Resting(_) if state.waiting.len() >= self.room => Poll::Pending,
                Work::Resting(_) => {
                    Poll::Ready(std::mem::replace(&mut state.work, Work::Polled).stream())
                }
            });
            let mut stream = match taken {
                Poll::Ready(Some(stream)) => stream,
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            };
            let polled = catch_panic(|| stream.poll_next_unpin(cx));
            match polled {
                Ok(Poll::Pending) => {
                    self.rest(stream, None);
                    return Poll::Pending;
                }
                Ok(Poll::Ready(Some(item))) => self.rest(stream, Some(item)),
                Ok(Poll::Ready(None)) => {
                    self.finish(Some(stream), None);
                    return Poll::Ready(());
                }
                Err(message) => {
                    self.finish(Some(stream), Some(Error::panic("the stream", &message)));
                    return Poll::Ready(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Puts the stream back behind a poll, and hands over what it gave. Where nobody wants it any
    /// more, both are dropped.
    fn rest(&self, stream: Source<T>, item: Option<Result<T, Error>>) {
        let came = item.is_some();
        let unwanted = self.with(|state| match state.work {
            Work::Over => Some((stream, item)),
            Work::Resting(_) | Work::Polled => {
                state.work = Work::Resting(stream);
                state.waiting.extend(item);
                None
            }
        });
        drop(unwanted);
        if came {
            self.consumer.wake();
        }
    }

    /// Drops the stream, and ends behind `error`.
    fn finish(&self, stream: Option<Source<T>>, error: Option<Error>) {
        // A panic in a `Drop` is no reason to keep the consumer waiting.
        let _ = catch_panic(|| drop(stream));
        self.with(|state| {
            if !matches!(state.work, Work::Over) {
                state.work = Work::Over;
                state.waiting.extend(error.map(Err));
            }
        });
        self.consumer.wake();
    }

    fn with<R>(&self, f: impl FnOnce(&mut State<T>) -> R) -> R {
        f(&mut lock(&self.state))
    }
}

impl<T> Work<T> {
    fn stream(self) -> Option<Source<T>> {
        match self {
            Self::Resting(stream) => Some(stream),
            Self::Polled | Self::Over => None,
        }
    }
}

/// The task.
pub(super) struct Drive<T>(pub(super) Arc<Relay<T>>);

impl<T> Future for Drive<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_drive(cx)
    }
}

impl<T> Drop for Drive<T> {
    fn drop(&mut self) {
        // Still there only if the runtime gave up the task.
        let left = self.0.with(|state| match state.work {
            Work::Over => None,
            Work::Resting(_) | Work::Polled => {
                Some(std::mem::replace(&mut state.work, Work::Polled).stream())
            }
        });
        if let Some(stream) = left {
            let message = "the runtime ended before the stream";
            self.0.finish(stream, Some(Error::new(ErrorKind::Other, message)));
        }
    }
}
