//! The stream that records events in a journal.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use pin_project::pin_project;

use crate::error::Error;
use crate::event::Event;
use crate::journal::Journal;

/// The stream returned by [`journal_to`](crate::journal::EventStreamExt::journal_to), which records
/// each event of another stream in a journal.
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub(crate) struct JournalTo<T> {
    #[pin]
    events: T,
    journal: Journal,
}

impl<T> JournalTo<T> {
    pub(super) fn new(events: T, journal: Journal) -> Self {
        Self { events, journal }
    }
}

impl<T: Stream<Item = Result<Event, Error>>> Stream for JournalTo<T> {
    type Item = Result<Event, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        let polled = this.events.poll_next(cx);
        if let Poll::Ready(Some(Ok(event))) = &polled {
            this.journal.observe(event);
        }
        polled
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}
