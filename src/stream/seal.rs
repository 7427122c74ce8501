//! What makes a stream of turn events lawful.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use pin_project::pin_project;

use crate::error::Error;
use crate::item::History;
use crate::request::Request;
use crate::turn::{TurnBuilder, TurnEvent};

/// What one poll of a [`TurnSource`] comes to.
///
/// `Ready(Some(Ok(())))` says that something was pushed, or may have been; `Ready(None)` that
/// nothing will come any more.
pub type TurnPoll = Poll<Option<Result<(), Error>>>;

/// What a turn can be read from: a stream of turn events, or a driver that decodes a wire.
pub trait TurnSource {
    /// Pushes what came next into `turn`.
    ///
    /// `Ready(Some(Ok(())))` says that something was pushed, or may have been; `Ready(None)` that
    /// nothing will come any more. It is not called again after `Ready(None)` or an error.
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll;
}

impl<T: Stream<Item = Result<TurnEvent, Error>>> TurnSource for T {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let event = ready!(self.poll_next(cx));
        Poll::Ready(event.map(|event| event.map(|event| turn.absorb(event))))
    }
}

impl From<&History> for TurnBuilder {
    fn from(history: &History) -> Self {
        Self::for_history(history)
    }
}

/// The turn follows the history of the request, and has no more bytes and output tokens than the
/// request allows.
impl From<&Request> for TurnBuilder {
    fn from(request: &Request) -> Self {
        let turn = Self::for_history(&request.history)
            .with_max_output_tokens(request.options.max_output_tokens);
        match request.max_turn_bytes {
            Some(max_bytes) => turn.with_max_bytes(max_bytes),
            None => turn,
        }
    }
}

/// Makes a source of turn events lawful for the turn that answers a [`Request`], or follows a
/// [`History`].
///
/// - Call ids are unique against the history and within the turn; see
///   [`TurnBuilder`](crate::turn::TurnBuilder) for how.
/// - `TurnComplete` comes once and last. The source is dropped before it is given out.
/// - A source that ends without it, and only then, gives an
///   [`IncompleteTurn`](crate::ErrorKind::IncompleteTurn) that carries what there was.
/// - Any other error carries what there was as well, if there was something.
/// - A turn that is too large ends with an error of kind [`TooLarge`](crate::ErrorKind::TooLarge); see
///   [`Request::max_turn_bytes`]. With a history alone the default of the builder holds.
/// - After the last event or an error comes `None`, for ever.
///
/// Dropping the stream drops the source.
pub fn seal(
    before: impl Into<TurnBuilder>,
    source: impl TurnSource + Send + 'static,
) -> TurnStream {
    TurnStream(Box::pin(Sealed { source: Some(source), turn: before.into(), pending_error: None }))
}

#[pin_project]
struct Sealed<T> {
    /// `None` once it ended; dropped before the last event is given out.
    #[pin]
    source: Option<T>,
    turn: TurnBuilder,
    /// Waits until the events before it were taken.
    pending_error: Option<Error>,
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
                return Poll::Ready(this.pending_error.take().map(Err));
            };
            match ready!(source.poll_turn(cx, this.turn)) {
                Some(Ok(())) => {
                    if this.turn.is_finished() {
                        this.source.set(None);
                        if !this.turn.is_complete() {
                            *this.pending_error = Some(this.turn.fail_incomplete(None));
                        }
                    }
                }
                Some(Err(error)) => {
                    this.source.set(None);
                    // Behind `TurnComplete` comes nothing.
                    *this.pending_error = (!this.turn.is_complete()).then(|| this.turn.fail(error));
                }
                None => {
                    this.source.set(None);
                    if !this.turn.is_complete() {
                        *this.pending_error = Some(this.turn.fail_incomplete(None));
                    }
                }
            }
        }
    }
}

/// A turn whose limits can be set before it is read.
trait LimitTurn: Stream<Item = Result<TurnEvent, Error>> + Send {
    fn set_limits(self: Pin<&mut Self>, max_bytes: usize, max_output_tokens: Option<u32>);
}

impl<T: TurnSource + Send> LimitTurn for Sealed<T> {
    fn set_limits(self: Pin<&mut Self>, max_bytes: usize, max_output_tokens: Option<u32>) {
        let turn = self.project().turn;
        turn.set_max_bytes(max_bytes);
        turn.set_max_output_tokens(max_output_tokens);
    }
}

/// A lawful, boxed stream of the events of one turn; see [`seal`].
///
/// Dropping it cancels the turn: the connection is closed, and nothing runs on.
#[must_use = "streams do nothing unless polled"]
pub struct TurnStream(Pin<Box<dyn LimitTurn>>);

impl TurnStream {
    /// Sets the limits also for a provider that has [sealed](seal) its turn without the request.
    pub(crate) fn with_limits(mut self, max_bytes: usize, max_output_tokens: Option<u32>) -> Self {
        self.0.as_mut().set_limits(max_bytes, max_output_tokens);
        self
    }

    /// Calls `observe` with each item before it is given out.
    pub fn observed_by(
        self,
        observe: impl FnMut(&Result<TurnEvent, Error>) + Send + Unpin + 'static,
    ) -> Self {
        Self(Box::pin(ObservedTurn { turn: self, observer: observe }))
    }
}

struct ObservedTurn<F> {
    turn: TurnStream,
    observer: F,
}

impl<F: FnMut(&Result<TurnEvent, Error>) + Unpin> Stream for ObservedTurn<F> {
    type Item = Result<TurnEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.turn.0.as_mut().poll_next(cx));
        if let Some(item) = &item {
            (self.observer)(item);
        }
        Poll::Ready(item)
    }
}

impl<F: FnMut(&Result<TurnEvent, Error>) + Send + Unpin> LimitTurn for ObservedTurn<F> {
    fn set_limits(mut self: Pin<&mut Self>, max_bytes: usize, max_output_tokens: Option<u32>) {
        self.turn.0.as_mut().set_limits(max_bytes, max_output_tokens);
    }
}

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
