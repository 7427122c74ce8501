//! The body that is running now: what every form of the loop shares.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use pin_project::pin_project;

use crate::stream::{IntoStep, Step};

/// How many bodies in a row may end without an item before the loop yields to the executor.
const SILENT_BODIES: u32 = 128;

/// How a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// The body said [`Step::Stop`].
    Stop,
    /// The body said [`Step::StopWith`].
    StopWith,
    /// The body ended without a decision.
    NoDecision,
    /// The body gave an error.
    Failed,
    /// The body, or the closure that makes it, panicked.
    Panicked,
    /// The input of a [`loop_over`](crate::stream::loop_over) ended.
    InputEnded,
}

/// Is told of every state that a body is built with, and of the end.
pub trait Observe<S> {
    /// A body is about to be built with this state.
    fn state(&mut self, state: &S);
    /// The loop ended, with a final state if there is one.
    fn ended(&mut self, ended: Ended, state: Option<S>);
}

/// Nobody looks.
impl<S> Observe<S> for () {
    #[inline]
    fn state(&mut self, _: &S) {}
    #[inline]
    fn ended(&mut self, _: Ended, _: Option<S>) {}
}

/// The active body and how the loop ended. At most one of the two is there.
#[pin_project]
#[derive(Debug)]
pub(super) struct Iteration<B> {
    /// `None` before the first body, between two, and after the end.
    #[pin]
    body: Option<B>,
    ended: Option<Ended>,
    silent: u32,
}

/// What polling the active body came to.
pub(super) enum Said<I, S> {
    /// An item for the consumer.
    Item(I),
    /// The body is over and was dropped; this is the next state.
    Next(S),
    /// The loop is over.
    Over,
}

type PollSaid<T> = Poll<Said<<T as IntoStep>::Item, <T as IntoStep>::State>>;

impl<B> Iteration<B> {
    pub(super) fn new() -> Self {
        Self { body: None, ended: None, silent: 0 }
    }

    #[inline]
    pub(super) fn is_active(self: Pin<&mut Self>) -> bool {
        self.project().body.is_some()
    }

    #[inline]
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Builds the next body. A panic in `make` ends the loop and goes on.
    #[inline]
    pub(super) fn begin(self: Pin<&mut Self>, make: impl FnOnce() -> B) {
        let this = self.project();
        let mut guard = EndOnPanic { body: this.body, ended: this.ended, armed: true };
        let body = make();
        guard.body.set(Some(body));
        guard.armed = false;
    }

    /// Ends the loop from outside the body.
    pub(super) fn end(self: Pin<&mut Self>, ended: Ended) {
        *self.project().ended = Some(ended);
    }

    /// Whether so many bodies in a row said nothing that the executor should have its turn.
    #[inline]
    pub(super) fn should_yield(self: Pin<&mut Self>) -> bool {
        let this = self.project();
        *this.silent += 1;
        if *this.silent < SILENT_BODIES {
            return false;
        }
        *this.silent = 0;
        true
    }

    /// Polls the active body, which must be there.
    #[inline]
    pub(super) fn poll_said<O>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        observer: &mut O,
    ) -> PollSaid<B::Item>
    where
        B: Stream,
        B::Item: IntoStep,
        O: Observe<<B::Item as IntoStep>::State>,
    {
        let mut this = self.project();
        let polled = {
            let mut guard = EndOnPanic { body: this.body.as_mut(), ended: this.ended, armed: true };
            let polled = match guard.body.as_mut().as_pin_mut() {
                Some(body) => body.poll_next(cx),
                None => Poll::Ready(None),
            };
            guard.armed = false;
            polled
        };
        let (ended, state, item) = match ready!(polled).map(IntoStep::into_step) {
            Some(Ok(Step::Value(value))) => {
                *this.silent = 0;
                return Poll::Ready(Said::Item(<B::Item as IntoStep>::item(value)));
            }
            Some(Ok(Step::Next(state))) => {
                // Dropped before the next one is built.
                this.body.set(None);
                return Poll::Ready(Said::Next(state));
            }
            Some(Ok(Step::Stop)) => (Ended::Stop, None, None),
            Some(Ok(Step::StopWith(state))) => (Ended::StopWith, Some(state), None),
            Some(Err(item)) => (Ended::Failed, None, Some(item)),
            None => (Ended::NoDecision, None, None),
        };
        this.body.set(None);
        *this.ended = Some(ended);
        observer.ended(ended, state);
        Poll::Ready(item.map_or(Said::Over, Said::Item))
    }
}

/// Drops the body and ends the loop if user code panics.
struct EndOnPanic<'a, B> {
    body: Pin<&'a mut Option<B>>,
    ended: &'a mut Option<Ended>,
    armed: bool,
}

impl<B> Drop for EndOnPanic<'_, B> {
    fn drop(&mut self) {
        if self.armed {
            *self.ended = Some(Ended::Panicked);
            self.body.set(None);
        }
    }
}
