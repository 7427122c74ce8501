//! A stream adapter that writes a trace.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use pin_project::pin_project;

use crate::error::Error;
use crate::event::Event;
use crate::trace::Trace;

/// The stream returned by the [`trace_to`](crate::journal::EventStreamExt::trace_to) method.
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub(crate) struct TraceTo<T> {
    #[pin]
    events: T,
    trace: Trace,
}

impl<T> TraceTo<T> {
    pub(crate) fn new(events: T, trace: Trace) -> Self {
        Self { events, trace }
    }
}

impl<T: Stream<Item = Result<Event, Error>>> Stream for TraceTo<T> {
    type Item = Result<Event, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        let polled = this.events.poll_next(cx);
        if let Poll::Ready(Some(Ok(event))) = &polled {
            this.trace.observe(event);
        }
        polled
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}
