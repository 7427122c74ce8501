//! Yields only the pieces of a turn's text.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use pin_project::pin_project;

use crate::error::Error;
use crate::turn::{Text, TurnEvent};

/// The stream returned by the [`text_deltas`](crate::stream::TurnStreamExt::text_deltas) method.
#[pin_project]
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct TextDeltas<T> {
    #[pin]
    events: T,
}

impl<T> TextDeltas<T> {
    pub(super) fn new(events: T) -> Self {
        Self { events }
    }
}

impl<T: Stream<Item = Result<TurnEvent, Error>>> Stream for TextDeltas<T> {
    type Item = Result<Text, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut events = self.project().events;
        loop {
            match ready!(events.as_mut().poll_next(cx)) {
                Some(Ok(TurnEvent::TextDelta { text, .. })) => return Poll::Ready(Some(Ok(text))),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}
