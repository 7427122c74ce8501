//! The basic loop, which passes a state from one iteration to the next.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::FusedStream;
use pin_project::pin_project;

use crate::stream::iteration::{Iteration, LoopObserver};
use crate::stream::{IntoStep, LoopEndReason};

/// Builds a body from the state, yields the body's items, and repeats with the state from the
/// body's last step until a step ends the loop.
///
/// `loop_stream` is like `unfold`, but each state yields a stream of items instead of a single
/// item. `body` is a closure that takes a state and returns a stream of
/// [`Step`](crate::stream::Step)s or of `Result`s that contain steps. An `Err` is yielded to the
/// consumer and ends the loop. If a body must first await a future, write it as `async move { …
/// }.flatten_stream()`.
///
/// - The next body is built only when the consumer polls for an item, after the previous body has
///   been dropped.
/// - Dropping the stream drops the active body exactly once.
/// - The loop runs in constant stack space and never allocates, regardless of the number of
///   iterations. After many consecutive bodies that yield no items, the loop yields to the
///   executor.
/// - A body that ends without a `Next`, `Stop` or `StopWith` also ends the loop.
///   [`end_reason`](LoopStream::end_reason) returns the reason why the loop ended.
/// - A panic in the body propagates to the caller. The body is dropped, and later polls of the
///   stream return `None`.
///
/// ```
/// use futures::{StreamExt, executor::block_on, stream};
/// use turnstream::stream::{Step, loop_stream};
///
/// let countdown = loop_stream(3, |n| {
///     stream::iter(match n {
///         0 => vec![Step::Value("liftoff".to_owned()), Step::Stop],
///         n => vec![Step::Value(n.to_string()), Step::Next(n - 1)],
///     })
/// });
/// assert_eq!(block_on(countdown.collect::<Vec<_>>()), ["3", "2", "1", "liftoff"]);
/// ```
pub fn loop_stream<S, B, F>(state: S, body: F) -> LoopStream<F, B, S>
where
    F: FnMut(S) -> B,
    B: Stream,
    B::Item: IntoStep<State = S>,
{
    LoopStream::with_observer(state, body, ())
}

/// The stream returned by the [`loop_stream`] function. Dropping it drops the active body and the
/// state for the next body.
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub struct LoopStream<F, B, S, O = ()> {
    make_body: F,
    #[pin]
    iteration: Iteration<B, S, O>,
}

impl<F, B, S, O> LoopStream<F, B, S, O> {
    pub(super) fn with_observer(state: S, make: F, observer: O) -> Self {
        Self { make_body: make, iteration: Iteration::new(state, observer) }
    }

    /// Drops the active body and restarts the loop with another state.
    pub(crate) fn restart(self: Pin<&mut Self>, state: S)
    where
        O: LoopObserver<S>,
    {
        self.project().iteration.restart(state);
    }

    /// Returns the reason why the loop ended, or `None` while the loop is running.
    pub fn end_reason(&self) -> Option<LoopEndReason> {
        self.iteration.end_reason()
    }

    /// Takes the final state of a loop that has ended with
    /// [`Step::StopWith`](crate::stream::Step::StopWith). Returns `None` while the loop is running,
    /// if the loop has ended in another way, and if the final state has already been taken.
    ///
    /// Adapters that take the loop by value, such as
    /// [`finish_with`](crate::EventStreamExt::finish_with), take this method out of reach. Call
    /// them on the pinned loop: `game.as_mut().journal_to(&journal)`.
    ///
    /// ```
    /// use std::pin::pin;
    ///
    /// use futures::{StreamExt, executor::block_on, stream};
    /// use turnstream::stream::{Step, loop_stream};
    ///
    /// let mut sum = pin!(loop_stream((0, 1), |(sum, n)| {
    ///     let next = (sum + n, n + 1);
    ///     let step = if n == 4 { Step::StopWith(next) } else { Step::Next(next) };
    ///     stream::iter([Step::Value(n), step])
    /// }));
    /// while let Some(n) = block_on(sum.next()) {
    ///     println!("adding {n}");
    /// }
    /// assert_eq!(sum.take_final_state(), Some((10, 5)));
    /// ```
    pub fn take_final_state(self: Pin<&mut Self>) -> Option<S> {
        self.project().iteration.take_final_state()
    }
}

impl<F, B, S, O> Stream for LoopStream<F, B, S, O>
where
    F: FnMut(S) -> B,
    B: Stream,
    B::Item: IntoStep<State = S>,
    O: LoopObserver<S>,
{
    type Item = <B::Item as IntoStep>::Item;

    #[inline]
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.as_mut().project();
        if this.iteration.is_active() {
            match this.iteration.poll_item(cx) {
                Poll::Ready(None) => {}
                polled => return polled,
            }
        }
        self.run_next_body(cx)
    }
}

impl<F, B, S, O> LoopStream<F, B, S, O>
where
    F: FnMut(S) -> B,
    B: Stream,
    B::Item: IntoStep<State = S>,
    O: LoopObserver<S>,
{
    /// Builds bodies until a body yields an item. This code is not part of `poll_next`, so that
    /// yielding an item from the active body is as fast as in a hand-written loop.
    #[cold]
    fn run_next_body(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<<B::Item as IntoStep>::Item>> {
        let mut this = self.project();
        loop {
            // Without a state for the next body, the loop has ended.
            if !this.iteration.is_idle() {
                return Poll::Ready(None);
            }
            if this.iteration.as_mut().should_yield() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            this.iteration.as_mut().start_body(&mut *this.make_body);
            match this.iteration.as_mut().poll_item(cx) {
                Poll::Ready(None) => {}
                polled => return polled,
            }
        }
    }
}

impl<F, B, S, O> FusedStream for LoopStream<F, B, S, O>
where
    F: FnMut(S) -> B,
    B: Stream,
    B::Item: IntoStep<State = S>,
    O: LoopObserver<S>,
{
    fn is_terminated(&self) -> bool {
        self.end_reason().is_some()
    }
}

impl<F, B, S, O> fmt::Debug for LoopStream<F, B, S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopStream").field("ended", &self.end_reason()).finish_non_exhaustive()
    }
}
