//! What makes a stream of turn events lawful.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{BoxStream, StreamExt};
use pin_project::pin_project;

use crate::error::Error;
use crate::item::History;
use crate::turn::{TurnBuilder, TurnEvent};

/// What a turn can be read from: a stream of turn events, or a driver that decodes a wire.
pub trait TurnSource {
    /// Pushes what came next into `turn`.
    ///
    /// `Ready(Some(Ok(())))` says that something was pushed, or may have been; `Ready(None)` that
    /// nothing will come any more. It is not called again after `Ready(None)` or an error.
    fn poll_turn(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> Poll<Option<Result<(), Error>>>;
}

impl<T: Stream<Item = Result<TurnEvent, Error>>> TurnSource for T {
    fn poll_turn(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> Poll<Option<Result<(), Error>>> {
        let event = ready!(self.poll_next(cx));
        Poll::Ready(event.map(|event| event.map(|event| turn.absorb(event))))
    }
}

/// Makes a source of turn events lawful for a turn that follows `history`.
///
/// - Call ids are unique against the history and within the turn; see
///   [`TurnBuilder`](crate::turn::TurnBuilder) for how.
/// - `TurnComplete` comes once and last. The source is dropped before it is given out.
/// - A source that ends without it, and only then, gives an
///   [`IncompleteTurn`](crate::ErrorKind::IncompleteTurn) that carries what there was.
/// - Any other error carries what there was as well, if there was something.
/// - After the last event or an error comes `None`, for ever.
///
/// Dropping the stream drops the source.
pub fn seal(history: &History, source: impl TurnSource + Send + 'static) -> TurnStream {
    let turn = TurnBuilder::after(history);
    TurnStream(Sealed { source: Some(source), turn, error: None }.boxed())
}

#[pin_project]
struct Sealed<T> {
    /// `None` once it ended; dropped before the last event is given out.
    #[pin]
    source: Option<T>,
    turn: TurnBuilder,
    /// Waits until the events before it were taken.
    error: Option<Error>,
}

impl<T: TurnSource> Stream for Sealed<T> {
    type Item = Result<TurnEvent, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            if let Some(event) = this.turn.next_event() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(source) = this.source.as_mut().as_pin_mut() else {
                return Poll::Ready(this.error.take().map(Err));
            };
            match ready!(source.poll_turn(cx, this.turn)) {
                Some(Ok(())) => {
                    if this.turn.is_over() {
                        this.source.set(None);
                        if !this.turn.is_complete() {
                            *this.error = Some(this.turn.incomplete(None));
                        }
                    }
                }
                Some(Err(error)) => {
                    this.source.set(None);
                    // Behind `TurnComplete` comes nothing.
                    *this.error = (!this.turn.is_complete()).then(|| this.turn.fail(error));
                }
                None => {
                    this.source.set(None);
                    if !this.turn.is_complete() {
                        *this.error = Some(this.turn.incomplete(None));
                    }
                }
            }
        }
    }
}

/// A lawful, boxed stream of the events of one turn; see [`seal`].
///
/// Dropping it cancels the turn: the connection is closed, and nothing runs on.
#[must_use = "streams do nothing unless polled"]
pub struct TurnStream(BoxStream<'static, Result<TurnEvent, Error>>);

impl Stream for TurnStream {
    type Item = Result<TurnEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for TurnStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnStream").finish_non_exhaustive()
    }
}
