//! Connects a streaming turn to the next step of a loop.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::FusedStream;
use pin_project::pin_project;

use crate::error::{Error, ErrorKind, panic_to_error};
use crate::event::Event;
use crate::stream::{Step, Steps};
use crate::turn::{PartialTurn, Turn, TurnEvent};

/// The stream returned by the [`on_turn_complete`](crate::stream::TurnStreamExt::on_turn_complete)
/// method.
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub(crate) struct OnTurnComplete<'a, T, Then, Fut, S> {
    #[pin]
    stage: Stage<'a, T, Fut, S>,
    /// The closure that decides the next step, or `None` once it has been called.
    then: Option<Then>,
}

#[pin_project(project = StageNow)]
enum Stage<'a, T, Fut, S> {
    Turn(#[pin] T),
    Completed(Arc<Turn>),
    Then(#[pin] Fut),
    Steps(Steps<'a, S>),
    Done,
}

impl<T, Then, Fut, S> OnTurnComplete<'_, T, Then, Fut, S> {
    pub(super) fn new(turn: T, then: Then) -> Self {
        Self { stage: Stage::Turn(turn), then: Some(then) }
    }
}

impl<'a, T, Then, Fut, S> Stream for OnTurnComplete<'a, T, Then, Fut, S>
where
    T: Stream<Item = Result<TurnEvent, Error>>,
    Then: FnOnce(Arc<Turn>) -> Fut,
    Fut: Future<Output = Result<Steps<'a, S>, Error>>,
{
    type Item = Result<Step<Event, S>, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            let failed = match this.stage.as_mut().project() {
                StageNow::Turn(turn) => match ready!(turn.poll_next(cx)) {
                    Some(Ok(event)) => {
                        if let TurnEvent::TurnComplete { turn } = &event {
                            let turn = Arc::clone(turn);
                            this.stage.set(Stage::Completed(turn));
                        }
                        return Poll::Ready(Some(Ok(Step::Value(Event::Turn(event)))));
                    }
                    Some(Err(error)) => error,
                    None => PartialTurn::default().into_error(None),
                },
                StageNow::Completed(turn) => {
                    let turn = Arc::clone(turn);
                    // Invariant: `then` is taken only here.
                    let Some(then) = this.then.take() else { return Poll::Ready(None) };
                    match catch_panic_in_then(|| then(turn)) {
                        Ok(future) => {
                            this.stage.set(Stage::Then(future));
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                StageNow::Then(future) => match catch_panic_in_then(|| future.poll(cx)) {
                    Ok(Poll::Pending) => return Poll::Pending,
                    Ok(Poll::Ready(Ok(steps))) => {
                        this.stage.set(Stage::Steps(steps));
                        continue;
                    }
                    Ok(Poll::Ready(Err(error))) | Err(error) => error,
                },
                StageNow::Steps(steps) => {
                    match catch_panic_in_then(|| Pin::new(steps).poll_next(cx)) {
                        Ok(Poll::Pending) => return Poll::Pending,
                        Ok(Poll::Ready(Some(Ok(step)))) => return Poll::Ready(Some(Ok(step))),
                        Ok(Poll::Ready(None)) => {
                            this.stage.set(Stage::Done);
                            return Poll::Ready(None);
                        }
                        Ok(Poll::Ready(Some(Err(error)))) | Err(error) => error,
                    }
                }
                StageNow::Done => return Poll::Ready(None),
            };
            this.stage.set(Stage::Done);
            return Poll::Ready(Some(Err(failed)));
        }
    }
}

/// Runs user code, and converts a panic into an error. The caller then drops the closure, future or
/// stream that panicked.
fn catch_panic_in_then<T>(f: impl FnOnce() -> T) -> Result<T, Error> {
    panic_to_error(ErrorKind::Panic, "`then`", f)
}

impl<'a, T, Then, Fut, S> FusedStream for OnTurnComplete<'a, T, Then, Fut, S>
where
    T: Stream<Item = Result<TurnEvent, Error>>,
    Then: FnOnce(Arc<Turn>) -> Fut,
    Fut: Future<Output = Result<Steps<'a, S>, Error>>,
{
    fn is_terminated(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }
}
