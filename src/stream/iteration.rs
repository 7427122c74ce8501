//! Manages the active iteration of a loop. All loop types share this code.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use pin_project::pin_project;

use crate::stream::{IntoStep, Step};

/// The maximum number of consecutive bodies that end without yielding an item before the loop
/// yields to the executor.
const MAX_EMPTY_BODIES: u32 = 128;

/// The reason why a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoopEndReason {
    /// The body yielded [`Step::Stop`].
    Stop,
    /// The body yielded [`Step::StopWith`].
    StopWith,
    /// The body ended without yielding a `Next`, `Stop` or `StopWith`.
    NoDecision,
    /// The body yielded an error.
    Failed,
    /// The body, or the closure that creates the body, panicked.
    Panicked,
    /// The input to [`loop_over`](crate::stream::loop_over) ended.
    InputEnded,
}

/// A trait for observing each state from which a loop body is built, as well as the end of the
/// loop.
pub trait LoopObserver<S> {
    /// Observes the state from which a body is about to be built.
    fn observe_state(&mut self, state: &S);
    /// Observes the end of the loop. `state` is the final state, if any.
    fn observe_end(&mut self, ended: LoopEndReason, state: Option<S>);
}

/// An observer that ignores all states and the end of the loop.
impl<S> LoopObserver<S> for () {
    #[inline]
    fn observe_state(&mut self, _: &S) {}
    #[inline]
    fn observe_end(&mut self, _: LoopEndReason, _: Option<S>) {}
}

/// Contains the active body, the state for the next body, or the reason why the loop ended. At most
/// one of these three is set.
#[pin_project]
#[derive(Debug)]
pub(super) struct Iteration<B, S, O> {
    /// The active body. This field is `None` before the first body, between two bodies, and after
    /// the end of the loop.
    #[pin]
    body: Option<B>,
    /// The state for the next body. This field is set only before the first body and between two
    /// bodies.
    next: Option<S>,
    end_reason: Option<LoopEndReason>,
    empty_bodies: u32,
    observer: O,
}

impl<B, S, O> Iteration<B, S, O> {
    pub(super) fn new(state: S, observer: O) -> Self {
        Self { body: None, next: Some(state), end_reason: None, empty_bodies: 0, observer }
    }

    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.body.is_some()
    }

    #[inline]
    pub(super) fn end_reason(&self) -> Option<LoopEndReason> {
        self.end_reason
    }

    /// Returns the state from which the next body is built.
    pub(super) fn next(&self) -> Option<&S> {
        self.next.as_ref()
    }

    pub(super) fn observer(&self) -> &O {
        &self.observer
    }

    /// Returns whether the loop should yield to the executor, because [`MAX_EMPTY_BODIES`]
    /// consecutive bodies have ended without yielding an item. Returning `true` resets the count of
    /// consecutive empty bodies.
    pub(super) fn should_yield(self: Pin<&mut Self>) -> bool {
        let this = self.project();
        let due = *this.empty_bodies >= MAX_EMPTY_BODIES;
        if due {
            *this.empty_bodies = 0;
        }
        due
    }
}

impl<B, S, O: LoopObserver<S>> Iteration<B, S, O> {
    /// Builds the next body if the state for that body is set. A panic in `make` ends the loop and
    /// propagates.
    pub(super) fn start_body(self: Pin<&mut Self>, make: impl FnOnce(S) -> B) {
        let mut guard = EndOnPanic { iteration: self, armed: true };
        let mut this = guard.iteration.as_mut().project();
        if let Some(state) = this.next.take() {
            this.observer.observe_state(&state);
            let body = make(state);
            this.body.set(Some(body));
        }
        guard.armed = false;
    }

    /// Drops the active body and restarts the loop with a new state. A panic while the body is
    /// being dropped ends the loop and propagates.
    pub(super) fn restart(self: Pin<&mut Self>, state: S) {
        let mut guard = EndOnPanic { iteration: self, armed: true };
        let mut this = guard.iteration.as_mut().project();
        this.body.set(None);
        *this.next = Some(state);
        *this.end_reason = None;
        *this.empty_bodies = 0;
        guard.armed = false;
    }

    /// Ends the loop from outside a body. The state for the next body, if any, becomes the final
    /// state.
    pub(super) fn end_with(self: Pin<&mut Self>, ended: LoopEndReason) {
        let this = self.project();
        *this.end_reason = Some(ended);
        this.observer.observe_end(ended, this.next.take());
    }

    /// Polls the active body for an item.
    ///
    /// `Ready(None)` means that the body has ended and has been dropped. Unless the loop has also
    /// ended, the state for the next body is set.
    #[inline]
    pub(super) fn poll_item(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<<B::Item as IntoStep>::Item>>
    where
        B: Stream,
        B::Item: IntoStep<State = S>,
    {
        let mut guard = EndOnPanic { iteration: self, armed: true };
        let mut this = guard.iteration.as_mut().project();
        let polled = match this.body.as_mut().as_pin_mut() {
            Some(body) => body.poll_next(cx),
            None => Poll::Ready(None),
        };
        let (ended, state, item) = match polled {
            Poll::Pending => {
                guard.armed = false;
                return Poll::Pending;
            }
            Poll::Ready(None) => (LoopEndReason::NoDecision, None, None),
            Poll::Ready(Some(step)) => match step.into_step() {
                Ok(Step::Value(value)) => {
                    *this.empty_bodies = 0;
                    guard.armed = false;
                    return Poll::Ready(Some(<B::Item as IntoStep>::wrap_value(value)));
                }
                Ok(Step::Next(state)) => {
                    // The current body is dropped before the next body is built.
                    drop_body(this.body);
                    *this.next = Some(state);
                    *this.empty_bodies += 1;
                    guard.armed = false;
                    return Poll::Ready(None);
                }
                Ok(Step::Stop) => (LoopEndReason::Stop, None, None),
                Ok(Step::StopWith(state)) => (LoopEndReason::StopWith, Some(state), None),
                Err(item) => (LoopEndReason::Failed, None, Some(item)),
            },
        };
        drop_body(this.body);
        *this.end_reason = Some(ended);
        this.observer.observe_end(ended, state);
        guard.armed = false;
        Poll::Ready(item)
    }
}

/// Drops the body. This function is not inlined, so that the stack frame that polls a body does not
/// reserve space for a second body. The size of the frame matters because a body may itself poll a
/// loop.
#[inline(never)]
fn drop_body<B>(mut body: Pin<&mut Option<B>>) {
    body.set(None);
}

/// Drops the body and ends the loop if user code panics, including code in a `Drop` implementation.
struct EndOnPanic<'a, B, S, O: LoopObserver<S>> {
    iteration: Pin<&'a mut Iteration<B, S, O>>,
    armed: bool,
}

impl<B, S, O: LoopObserver<S>> Drop for EndOnPanic<'_, B, S, O> {
    fn drop(&mut self) {
        if self.armed {
            let mut this = self.iteration.as_mut().project();
            *this.end_reason = Some(LoopEndReason::Panicked);
            this.observer.observe_end(LoopEndReason::Panicked, None);
            this.body.set(None);
        }
    }
}
