//! A boxed stream of steps, which gives all arms of a loop's body the same type.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt};

use crate::error::Error;
use crate::event::Event;
use crate::stream::Step;

/// A boxed stream of steps whose values are [`Event`]s. Boxing gives all arms of a loop's body the
/// same return type.
///
/// Dropping the `Steps` drops the boxed stream.
#[must_use = "streams do nothing unless polled"]
pub struct Steps<'a, S>(BoxStream<'a, Result<Step<Event, S>, Error>>);

impl<'a, S: Send + 'a> Steps<'a, S> {
    /// Boxes a stream of steps.
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

    /// Returns steps that end the loop with a final state.
    pub fn stop_with(state: S) -> Self {
        Self::from_step(Step::StopWith(state))
    }

    /// Adds `events` before the existing steps, so that the consumer receives them first.
    pub fn preceded_by(self, events: impl IntoIterator<Item = Event, IntoIter: Send + 'a>) -> Self {
        let values = stream::iter(events).map(|event| Ok(Step::Value(event)));
        Self::new(values.chain(self))
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
