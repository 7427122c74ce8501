//! A boxed stream of steps, which gives all arms of a loop's body the same type.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt};

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::stream::Step;
use crate::turn::{PartialTurn, TurnEvent};
use crate::usage::Usage;

/// A boxed stream of steps whose values are [`Event`]s. It is boxed so that a loop's body can
/// return different streams, for example from the arms of a `match`.
///
/// Dropping the `Steps` drops the boxed stream.
///
/// ```
/// use futures::TryStreamExt;
/// use turnstream::provider::{Provider, Scripted};
/// use turnstream::{History, Item, Request, Steps, TurnStreamExt, loop_stream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let model = Scripted::new(["Yes.", "No."]);
/// let events = loop_stream(vec!["Is it cold?", "Is it raining?"], |mut questions| {
///     let Some(question) = questions.pop() else { return Steps::stop() };
///     let history = History::from_items("h", [Item::user(question)]);
///     let turn = model.stream_turn(Request::new(history));
///     Steps::new(turn.on_turn_complete(async move |_turn| Ok(Steps::next(questions))))
/// });
/// let events: Vec<_> = events.try_collect().await?;
/// assert_eq!(events.iter().filter_map(|event| event.turn_complete()).count(), 2);
/// # Ok(())
/// # }
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct Steps<'a, S>(BoxStream<'a, Result<Step<Event, S>, Error>>);

impl<'a, S: Send + 'a> Steps<'a, S> {
    /// Boxes a stream of steps, for example a turn's events from
    /// [`on_turn_complete`](crate::TurnStreamExt::on_turn_complete).
    pub fn new(steps: impl Stream<Item = Result<Step<Event, S>, Error>> + Send + 'a) -> Self {
        Self(steps.boxed())
    }

    /// Returns steps that continue the loop with `state`.
    pub fn next(state: S) -> Self {
        Self::from_step(Step::Next(state))
    }

    /// Returns steps that end the loop.
    pub fn stop() -> Self {
        Self::from_step(Step::Stop)
    }

    /// Returns steps that end the loop with a final state, which the consumer takes from the loop
    /// with [`LoopStream::take_final_state`](crate::stream::LoopStream::take_final_state).
    /// [`ToolRun::then_steps`](crate::tool::ToolRun::then_steps) has an example.
    pub fn stop_with(state: S) -> Self {
        Self::from_step(Step::StopWith(state))
    }

    /// Adds `events` before the existing steps, so that the consumer receives them first.
    pub fn preceded_by(self, events: impl IntoIterator<Item = Event, IntoIter: Send + 'a>) -> Self {
        let values = stream::iter(events).map(|event| Ok(Step::Value(event)));
        Self::new(values.chain(self))
    }

    /// Replaces an error of the given kind with the steps that `then` returns, so that the loop
    /// continues. All other steps and errors pass through.
    ///
    /// If the failed turn has already emitted events, a
    /// [`Retracted`](crate::TurnEvent::Retracted) event comes first. It tells the consumer and the
    /// journal that these events are void, and contains the usage of the attempt.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::provider::{Provider, Reply, Scripted};
    /// use turnstream::stream::TurnStreamExt;
    /// use turnstream::{ErrorKind, History, Item, Request, Steps, loop_stream};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// // The first answer breaks off.
    /// let model = Scripted::new([Reply::text("Forty-").disconnect(), Reply::text("Forty-two.")]);
    /// let question = History::from_items("h", [Item::user("What is it?")]);
    /// let events = loop_stream(question, move |history| {
    ///     let turn = model.stream_turn(Request::new(history.clone()));
    ///     let steps = turn.on_turn_complete(|_turn| async { Ok(Steps::stop()) });
    ///     Steps::new(steps).recover(ErrorKind::IncompleteTurn, |_error| Steps::next(history))
    /// });
    /// assert!(events.all(|event| async move { event.is_ok() }).await);
    /// # }
    /// ```
    pub fn recover(self, kind: ErrorKind, then: impl FnOnce(Error) -> Self + Send + 'a) -> Self {
        Self::new(async_stream::stream! {
            let mut steps = self;
            let mut is_turn_open = false;
            let error = loop {
                match steps.next().await {
                    Some(Err(error)) if error.kind() == kind => break error,
                    Some(step) => {
                        if let Ok(Step::Value(Event::Turn(event))) = &step {
                            is_turn_open = match event {
                                TurnEvent::Retracted { .. } | TurnEvent::TurnComplete { .. } => false,
                                TurnEvent::Retrying { .. } => is_turn_open,
                                TurnEvent::TextDelta { .. }
                                | TurnEvent::ReasoningDelta { .. }
                                | TurnEvent::RefusalDelta { .. }
                                | TurnEvent::ToolCallStart { .. }
                                | TurnEvent::ToolCallArgsDelta { .. }
                                | TurnEvent::ToolCallEnd { .. }
                                | TurnEvent::UsageUpdate { .. } => true,
                            };
                        }
                        yield step;
                    }
                    None => return,
                }
            };
            drop(steps);
            if is_turn_open {
                let partial = error.find_source::<PartialTurn>();
                let usage = partial.map_or_else(Usage::default, PartialTurn::usage);
                let why = format!("the turn failed: {error}");
                yield Ok(Step::Value(TurnEvent::Retracted { why, usage: usage.into() }.into()));
            }
            let mut steps = then(error);
            while let Some(step) = steps.next().await {
                yield step;
            }
        })
    }

    fn from_step(step: Step<Event, S>) -> Self {
        Self(stream::once(std::future::ready(Ok(step))).boxed())
    }
}

impl<S> Stream for Steps<'_, S> {
    type Item = Result<Step<Event, S>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl<S> fmt::Debug for Steps<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}
