//! Forwards the events of turns directly to the run, bypassing the loop body.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use futures::{Stream, StreamExt, future};
use pin_project::pin_project;

use crate::agent::State;
use crate::error::Error;
use crate::event::Event;
use crate::lock::lock_ignoring_poison;
use crate::stream::{Step, TurnStream};
use crate::turn::{PartialTurn, Turn};

type BodyStep = Result<Step<Event, State>, Error>;

/// Returns a stream that yields a loop body's steps and the events from the turns that the body
/// forwards.
///
/// The function `body` receives a [`TurnForwarder`]. While a turn is being
/// [forwarded](TurnForwarder::forward), its events pass from the provider to the run without the
/// body being polled, so the body adds no cost per token.
///
/// Dropping the returned stream drops the body and the turn that is being forwarded.
///
/// ```
/// use async_stream::try_stream;
/// use futures::Stream;
/// use turnstream::agent::{NextAction, RunContext, State, forward_turns};
/// use turnstream::event::EndReason;
/// use turnstream::provider::Scripted;
/// use turnstream::stream::Step;
/// use turnstream::{Agent, Error, Event, History};
///
/// /// Asks the model once, and ends.
/// fn ask_once(
///     cx: RunContext,
///     state: State,
/// ) -> impl Stream<Item = Result<Step<Event, State>, Error>> + Send {
///     forward_turns(|mut turns| {
///         try_stream! {
///             let (state, request) = cx.next_request(state).await?;
///             let Some(request) = request else { return };
///             yield Step::Value(cx.turn_started_event(&state));
///             let turn = turns.forward(cx.send_request(&state, request)).await?;
///             cx.notify_turn(&state, &turn);
///             let next = NextAction::Finish(EndReason::Completed);
///             let (events, step) = cx.apply_next_action(state, next);
///             for event in events {
///                 yield Step::Value(event);
///             }
///             yield step;
///         }
///     })
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// let run = agent.run_with_body(ask_once, History::empty("h"), "Hi");
/// assert_eq!(run.outcome().await.text, "Hello!");
/// # }
/// ```
pub fn forward_turns<B: Stream<Item = BodyStep>>(
    body: impl FnOnce(TurnForwarder) -> B,
) -> impl Stream<Item = BodyStep> {
    let slot = Slot::default();
    let body = body(TurnForwarder(Arc::clone(&slot)));
    ForwardTurns { body, turn: None, slot }
}

/// Passes turns from a loop body to the [`forward_turns`] stream, which yields the turns' events.
#[derive(Debug)]
pub struct TurnForwarder(Slot);

type Slot = Arc<Mutex<SlotState>>;

/// The state shared by a loop body and the [`forward_turns`] stream that wraps the body.
#[derive(Default)]
enum SlotState {
    #[default]
    Empty,
    /// A turn that the body has handed over. The body is waiting for the turn to end.
    Turn(TurnStream),
    /// The reply from the wrapping stream to the body: the complete turn, or the error with which
    /// the turn failed.
    Ended(Result<Arc<Turn>, Error>),
}

impl std::fmt::Debug for SlotState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Turn(_) => "Turn",
            Self::Ended(_) => "Ended",
        })
    }
}

impl TurnForwarder {
    /// Forwards a turn's events, including `TurnComplete`, to the [`forward_turns`] stream, which
    /// yields them. Returns the complete turn.
    ///
    /// Dropping the returned future after its first poll does not cancel the turn, whose events are
    /// still yielded. Dropping the [`forward_turns`] stream does.
    ///
    /// Other futures in the body, such as timers, are not polled until the turn has ended. A body
    /// that must receive each event can poll the [`TurnStream`] itself.
    ///
    /// # Errors
    ///
    /// Returns the error with which the turn failed. The [`forward_turns`] stream does not yield
    /// this error.
    pub async fn forward(&mut self, turn: TurnStream) -> Result<Arc<Turn>, Error> {
        *lock_ignoring_poison(&self.0) = SlotState::Turn(turn);
        future::poll_fn(|_| {
            let mut slot = lock_ignoring_poison(&self.0);
            match std::mem::take(&mut *slot) {
                SlotState::Ended(ended) => Poll::Ready(ended),
                // The `forward_turns` stream polls the turn next, and then this future.
                waiting => {
                    *slot = waiting;
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[pin_project]
struct ForwardTurns<B> {
    #[pin]
    body: B,
    /// The turn whose events are being yielded.
    turn: Option<TurnStream>,
    slot: Slot,
}

impl<B: Stream<Item = BodyStep>> Stream for ForwardTurns<B> {
    type Item = BodyStep;

    #[inline]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<BodyStep>> {
        let mut this = self.project();
        loop {
            if let Some(turn) = this.turn {
                let ended = match ready!(turn.poll_next_unpin(cx)) {
                    Some(Ok(event)) => {
                        let event = Event::from(event);
                        if let Some(turn) = event.turn_complete() {
                            let ended = SlotState::Ended(Ok(Arc::clone(turn)));
                            *lock_ignoring_poison(this.slot) = ended;
                            *this.turn = None;
                        }
                        return Poll::Ready(Some(Ok(Step::Value(event))));
                    }
                    Some(Err(error)) => error,
                    None => PartialTurn::default().into_error(None),
                };
                *this.turn = None;
                *lock_ignoring_poison(this.slot) = SlotState::Ended(Err(ended));
            }
            let polled = this.body.as_mut().poll_next(cx);
            if polled.is_ready() {
                return polled;
            }
            let mut slot = lock_ignoring_poison(this.slot);
            match std::mem::take(&mut *slot) {
                SlotState::Turn(turn) => *this.turn = Some(turn),
                other => {
                    *slot = other;
                    return Poll::Pending;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::item::{History, StopReason};
    use crate::stream::seal;
    use crate::turn::{TurnBuilder, TurnEvent};
    use futures::{FutureExt, stream};

    /// Returns a turn whose text, `Hello`, arrives in five pieces.
    fn hello() -> TurnStream {
        let mut turn = TurnBuilder::new();
        for piece in ["H", "e", "l", "l", "o"] {
            turn.push_text(0, piece);
        }
        turn.stop(StopReason::Stop, "stop");
        turn.complete().unwrap();
        let events: Vec<_> = std::iter::from_fn(|| turn.next_event()).map(Ok).collect();
        seal(&History::empty("h"), stream::iter(events))
    }

    fn text_of(step: &BodyStep) -> Option<String> {
        match step {
            Ok(Step::Value(event)) => event.text_delta().map(ToString::to_string),
            _ => None,
        }
    }

    #[test]
    fn the_body_is_not_polled_while_a_turn_is_forwarded() {
        let polls = std::cell::Cell::new(0);
        let body = forward_turns(|mut turns| {
            let mut forwarding = Box::pin(async move {
                let turn = turns.forward(hello()).await?;
                assert_eq!(turn.text(), "Hello");
                let turn = turns.forward(hello()).await?;
                assert_eq!(turn.text(), "Hello");
                Ok(Step::Stop)
            });
            stream::poll_fn(move |cx| {
                polls.set(polls.get() + 1);
                let polled = forwarding.poll_unpin(cx).map(Some);
                if polled.is_ready() {
                    assert_eq!(polls.get(), 3, "to begin two turns and to end");
                }
                polled
            })
        });
        let steps: Vec<_> = body.take(13).collect().now_or_never().expect("nothing waits");
        let text: String = steps.iter().filter_map(text_of).collect();
        assert_eq!(text, "HelloHello");
        assert!(matches!(steps.last(), Some(Ok(Step::Stop))));
    }

    #[test]
    fn the_error_of_a_turn_goes_to_the_body_alone() {
        let body = forward_turns(|mut turns| {
            stream::once(async move {
                let broken =
                    stream::iter([Ok(TurnEvent::TextDelta { index: 0, text: "H".into() })]);
                let error = turns.forward(seal(&History::empty("h"), broken)).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
                Ok(Step::Stop)
            })
        });
        let steps: Vec<_> = body.collect().now_or_never().expect("nothing waits");
        assert_eq!(steps.iter().filter_map(text_of).collect::<String>(), "H");
        assert!(steps.iter().all(Result::is_ok), "{steps:?}");
        assert_eq!(steps.len(), 2);
    }

    #[test]
    fn a_dropped_body_drops_the_turn_that_is_forwarded() {
        let held = Arc::new(());
        let witness = Arc::clone(&held);
        let endless = stream::pending().inspect(move |_: &Result<TurnEvent, Error>| {
            let _ = &witness;
        });
        let turn = seal(&History::empty("h"), endless);
        let mut body = Box::pin(forward_turns(|mut turns| {
            stream::once(async move { turns.forward(turn).await.map(|_| Step::Stop) })
        }));
        assert!(body.next().now_or_never().is_none());
        assert_eq!(Arc::strong_count(&held), 2);
        drop(body);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
