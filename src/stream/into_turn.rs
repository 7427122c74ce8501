//! A future that resolves to the finished turn, without its events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use pin_project::pin_project;

use crate::error::Error;
use crate::turn::{PartialTurn, Turn, TurnEvent};

/// The future returned by the [`into_turn`](crate::stream::TurnStreamExt::into_turn) method.
#[pin_project]
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct IntoTurn<T> {
    #[pin]
    events: T,
    partial: PartialTurn,
}

impl<T> IntoTurn<T> {
    pub(super) fn new(events: T) -> Self {
        Self { events, partial: PartialTurn::default() }
    }
}

impl<T: Stream<Item = Result<TurnEvent, Error>>> Future for IntoTurn<T> {
    type Output = Result<Arc<Turn>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match ready!(this.events.as_mut().poll_next(cx)) {
                Some(Ok(TurnEvent::TurnComplete { turn })) => return Poll::Ready(Ok(turn)),
                Some(Ok(event)) => this.partial.absorb(&event),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Err(std::mem::take(this.partial).into_error(None))),
            }
        }
    }
}
