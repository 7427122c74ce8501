//! The stream that yields values between the events from which they are read.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::FusedStream;
use pin_project::pin_project;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::event::Event;
use crate::partial::values::{Partial, PartialValues};

/// An item of a stream [with partials](crate::EventStreamExt::with_partials).
#[derive(Clone, Debug, PartialEq)]
pub enum EventOrPartial<T> {
    /// The next event of the run.
    Event(Event),
    /// A value that the events so far have changed.
    Partial(Partial<T>),
}

/// The stream returned by [`with_partials`](crate::EventStreamExt::with_partials).
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub(crate) struct WithPartials<S, T> {
    /// The stream of events, or `None` once it has ended.
    #[pin]
    events: Option<S>,
    values: PartialValues<T>,
}

impl<S, T> WithPartials<S, T> {
    pub(crate) fn new(events: S, values: PartialValues<T>) -> Self {
        Self { events: Some(events), values }
    }
}

impl<S, T> Stream for WithPartials<S, T>
where
    S: Stream<Item = Result<Event, Error>>,
    T: DeserializeOwned,
{
    type Item = Result<EventOrPartial<T>, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        let partial = |partial| Poll::Ready(Some(Ok(EventOrPartial::Partial(partial))));
        loop {
            if let Some(ended) = this.values.next_ended() {
                return partial(ended);
            }
            let Some(events) = this.events.as_mut().as_pin_mut() else { return Poll::Ready(None) };
            return match events.poll_next(cx) {
                Poll::Ready(Some(Ok(event))) => {
                    this.values.observe(&event);
                    Poll::Ready(Some(Ok(EventOrPartial::Event(event))))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => {
                    this.events.set(None);
                    this.values.end_early("incomplete");
                    continue;
                }
                // All events that are ready have been yielded, so it is time for a value.
                Poll::Pending => this.values.next_partial().map_or(Poll::Pending, partial),
            };
        }
    }
}

impl<S, T> FusedStream for WithPartials<S, T>
where
    S: Stream<Item = Result<Event, Error>>,
    T: DeserializeOwned,
{
    fn is_terminated(&self) -> bool {
        self.events.is_none() && self.values.has_no_ended()
    }
}
