//! A loop that runs a body for each item in an input stream and passes a state from one body to the
//! next.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::FusedStream;
use pin_project::pin_project;

use crate::stream::iteration::Iteration;
use crate::stream::{IntoStep, LoopEndReason};

/// Runs `body` once for each item in `input`, passing along the state from the previous iteration.
///
/// `loop_over` is like `scan`, but each input item yields a stream of items. `Next(state)` ends the
/// body and passes `state` to the iteration for the next input item. The loop ends after a `Stop`,
/// a `StopWith` or an error, or if a body ends without a `Next`. An input item is pulled only when
/// the consumer polls while no body is active.
///
/// Dropping the stream drops the active body and the input.
///
/// ```
/// use futures::{StreamExt, executor::block_on, stream};
/// use turnstream::stream::{Step, loop_over};
///
/// let totals = loop_over(stream::iter([1, 2, 3]), 0, |total, n| {
///     stream::iter([Step::Value(total + n), Step::Next(total + n)])
/// });
/// assert_eq!(block_on(totals.collect::<Vec<_>>()), [1, 3, 6]);
/// ```
pub fn loop_over<I, S, B, F>(input: I, state: S, body: F) -> LoopOver<I, F, B, S>
where
    I: Stream,
    F: FnMut(S, I::Item) -> B,
    B: Stream,
    B::Item: IntoStep<State = S>,
{
    LoopOver { input, make_body: body, iteration: Iteration::new(state, ()) }
}

/// An extension trait that provides [`loop_over`] as a method on streams.
pub trait LoopOverExt: Stream + Sized {
    /// Runs `body` once for each item, passing along the state from the previous iteration; see
    /// [`loop_over`]. Dropping the returned stream drops the active body and this stream.
    fn loop_over<S, B, F>(self, state: S, body: F) -> LoopOver<Self, F, B, S>
    where
        F: FnMut(S, Self::Item) -> B,
        B: Stream,
        B::Item: IntoStep<State = S>,
    {
        loop_over(self, state, body)
    }
}

impl<I: Stream> LoopOverExt for I {}

/// The stream returned by the [`loop_over`] function. Dropping it drops the active body and the
/// input.
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub struct LoopOver<I, F, B, S> {
    #[pin]
    input: I,
    make_body: F,
    #[pin]
    iteration: Iteration<B, S, ()>,
}

impl<I, F, B, S> LoopOver<I, F, B, S> {
    /// Returns the reason why the loop ended, or `None` while the loop is running.
    pub fn end_reason(&self) -> Option<LoopEndReason> {
        self.iteration.end_reason()
    }

    /// Returns the current state between two input items, or the final state after the input has
    /// ended or a body has yielded [`Step::StopWith`](crate::stream::Step::StopWith). Returns
    /// `None` while a body is active.
    pub fn state(&self) -> Option<&S> {
        self.iteration.state()
    }
}

impl<I, F, B, S> Stream for LoopOver<I, F, B, S>
where
    I: Stream,
    F: FnMut(S, I::Item) -> B,
    B: Stream,
    B::Item: IntoStep<State = S>,
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

impl<I, F, B, S> LoopOver<I, F, B, S>
where
    I: Stream,
    F: FnMut(S, I::Item) -> B,
    B: Stream,
    B::Item: IntoStep<State = S>,
{
    /// Pulls input items and builds a body for each input item, until a body yields an item.
    // NOTE: this method is like `LoopStream::run_next_body`, except that it pulls input items.
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
            let Some(item) = ready!(this.input.as_mut().poll_next(cx)) else {
                this.iteration.as_mut().end_with(LoopEndReason::InputEnded);
                return Poll::Ready(None);
            };
            this.iteration.as_mut().start_body(|state| (this.make_body)(state, item));
            match this.iteration.as_mut().poll_item(cx) {
                Poll::Ready(None) => {}
                polled => return polled,
            }
        }
    }
}

impl<I, F, B, S> FusedStream for LoopOver<I, F, B, S>
where
    I: Stream,
    F: FnMut(S, I::Item) -> B,
    B: Stream,
    B::Item: IntoStep<State = S>,
{
    fn is_terminated(&self) -> bool {
        self.end_reason().is_some()
    }
}

impl<I, F, B, S> fmt::Debug for LoopOver<I, F, B, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopOver").field("ended", &self.end_reason()).finish_non_exhaustive()
    }
}
