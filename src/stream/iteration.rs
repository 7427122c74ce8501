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
    fn observe_end(&mut self, ended: LoopEndReason, state: Option<&S>);
}

/// An observer that ignores all states and the end of the loop.
impl<S> LoopObserver<S> for () {
    #[inline]
    fn observe_state(&mut self, _: &S) {}
    #[inline]
    fn observe_end(&mut self, _: LoopEndReason, _: Option<&S>) {}
}

/// The active iteration of a loop.
#[pin_project]
#[derive(Debug)]
pub(super) struct Iteration<B, S, O> {
    #[pin]
    phase: Phase<B, S>,
    empty_bodies: u32,
    observer: O,
}

#[pin_project(project = PhaseProjection, project_replace = ReplacedPhase)]
#[derive(Debug)]
enum Phase<B, S> {
    /// Before the first body, or between two bodies, with the state for the next body.
    Idle(S),
    Active(#[pin] B),
    /// After the end of the loop, with the final state, if any.
    Ended(LoopEndReason, Option<S>),
}

impl<B, S, O> Iteration<B, S, O> {
    pub(super) fn new(state: S, observer: O) -> Self {
        Self { phase: Phase::Idle(state), empty_bodies: 0, observer }
    }

    #[inline]
    pub(super) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Active(_))
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle(_))
    }

    #[inline]
    pub(super) fn end_reason(&self) -> Option<LoopEndReason> {
        match &self.phase {
            Phase::Idle(_) | Phase::Active(_) => None,
            Phase::Ended(reason, _) => Some(*reason),
        }
    }

    /// Returns the state for the next body, or the final state. Returns `None` while a body is
    /// active.
    pub(super) fn state(&self) -> Option<&S> {
        match &self.phase {
            Phase::Idle(state) => Some(state),
            Phase::Active(_) => None,
            Phase::Ended(_, state) => state.as_ref(),
        }
    }

    /// Takes the final state. Returns `None` while the loop is running.
    pub(super) fn take_final_state(self: Pin<&mut Self>) -> Option<S> {
        match self.project().phase.project() {
            PhaseProjection::Idle(_) | PhaseProjection::Active(_) => None,
            PhaseProjection::Ended(_, state) => state.take(),
        }
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
    /// Builds the next body if no body is active and the loop has not ended. A panic in `make` ends
    /// the loop and propagates.
    pub(super) fn start_body(self: Pin<&mut Self>, make: impl FnOnce(S) -> B) {
        if !self.is_idle() {
            return;
        }
        let mut guard = EndOnPanic { iteration: self, armed: true };
        let mut this = guard.iteration.as_mut().project();
        let panicked = Phase::Ended(LoopEndReason::Panicked, None);
        if let ReplacedPhase::Idle(state) = this.phase.as_mut().project_replace(panicked) {
            this.observer.observe_state(&state);
            let body = make(state);
            this.phase.set(Phase::Active(body));
        }
        guard.armed = false;
    }

    /// Drops the active body and restarts the loop with a new state. A panic while the body is
    /// being dropped ends the loop and propagates.
    pub(super) fn restart(self: Pin<&mut Self>, state: S) {
        let mut guard = EndOnPanic { iteration: self, armed: true };
        let this = guard.iteration.as_mut().project();
        set_phase(this.phase, Phase::Idle(state));
        *this.empty_bodies = 0;
        guard.armed = false;
    }

    /// Ends the loop from outside a body. The state for the next body, if any, becomes the final
    /// state.
    pub(super) fn end_with(self: Pin<&mut Self>, reason: LoopEndReason) {
        let mut this = self.project();
        let ended = this.phase.as_mut().project_replace(Phase::Ended(reason, None));
        let state = match ended {
            ReplacedPhase::Idle(state) => Some(state),
            ReplacedPhase::Ended(_, state) => state,
            ReplacedPhase::Active(_) => None,
        };
        this.observer.observe_end(reason, state.as_ref());
        this.phase.set(Phase::Ended(reason, state));
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
        let polled = match this.phase.as_mut().project() {
            PhaseProjection::Active(body) => body.poll_next(cx),
            PhaseProjection::Idle(_) | PhaseProjection::Ended(..) => {
                guard.armed = false;
                return Poll::Ready(None);
            }
        };
        let (reason, state, item) = match polled {
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
                    set_phase(this.phase, Phase::Idle(state));
                    *this.empty_bodies += 1;
                    guard.armed = false;
                    return Poll::Ready(None);
                }
                Ok(Step::Stop) => (LoopEndReason::Stop, None, None),
                Ok(Step::StopWith(state)) => (LoopEndReason::StopWith, Some(state), None),
                Err(item) => (LoopEndReason::Failed, None, Some(item)),
            },
        };
        set_phase(this.phase.as_mut(), Phase::Ended(reason, state));
        let state = match this.phase.project() {
            PhaseProjection::Ended(_, state) => state.as_ref(),
            PhaseProjection::Idle(_) | PhaseProjection::Active(_) => None,
        };
        this.observer.observe_end(reason, state);
        guard.armed = false;
        Poll::Ready(item)
    }
}

/// Drops the body, if it is active, and then sets the phase. This function is not inlined, so that
/// the stack frame that polls a body does not reserve space for a second body. The size of the
/// frame matters because a body may itself poll a loop.
#[inline(never)]
fn set_phase<B, S>(mut phase: Pin<&mut Phase<B, S>>, next: Phase<B, S>) {
    phase.set(next);
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
            this.observer.observe_end(LoopEndReason::Panicked, None);
            this.phase.set(Phase::Ended(LoopEndReason::Panicked, None));
        }
    }
}
