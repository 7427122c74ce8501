//! Enforces the contract for streams of turn events.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use pin_project::pin_project;

use crate::error::Error;
use crate::item::History;
use crate::request::Request;
use crate::turn::{TurnBuilder, TurnEvent};

/// The result of polling a [`TurnSource`].
///
/// `Ready(Some(Ok(())))` means that an event was, or may have been, pushed into the builder.
/// `Ready(None)` means that the source has ended.
pub type TurnPoll = Poll<Option<Result<(), Error>>>;

/// A trait for sources from which a turn can be read: a stream of turn events, or a driver that
/// decodes a wire format.
pub trait TurnSource {
    /// Pushes the next piece of the turn into `turn`.
    ///
    /// Returns `Ready(Some(Ok(())))` if an event was, or may have been, pushed, and `Ready(None)`
    /// at the end. `poll_turn` is not called again after `Ready(None)` or an error.
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll;

    /// Sets what this source knows about an incomplete turn beside the turn's events, such as the
    /// name of the model. This method is called before the turn is interrupted.
    ///
    /// By default, nothing is set. Only a source that wraps the turn of another provider has
    /// something to set, for example with [`TurnStream::describe`].
    fn describe(&self, _turn: &mut TurnBuilder) {}
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

/// Creates a builder for the turn that follows the request's history, using the request's limits on
/// bytes and output tokens.
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

/// Creates a stream of a turn's events from `source`. `before` is the [`Request`] that the turn
/// answers, or the [`History`] that the turn follows. Regardless of the source, the stream
/// satisfies this contract:
///
/// - Call ids are unique within the history and the turn; [`TurnBuilder`](crate::turn::TurnBuilder)
///   describes how duplicate ids are changed.
/// - `TurnComplete` is yielded exactly once, as the last event. The source is dropped before
///   `TurnComplete` is yielded.
/// - An [`IncompleteTurn`](crate::ErrorKind::IncompleteTurn) error is yielded only if the source
///   ends without a complete turn. The error carries the partial turn.
/// - All other errors also carry the partial turn, unless the partial turn is empty.
/// - A turn that is [interrupted](crate::RunHandle::interrupt_turn) completes with the stop reason
///   [`Interrupted`](crate::turn::StopReason::Interrupted) and the part that has arrived.
/// - A turn that is too large ends with a [`TooLarge`](crate::ErrorKind::TooLarge) error; see
///   [`Request::max_turn_bytes`]. If the turn follows a history rather than a request, the
///   builder's default limit applies.
/// - After the last event or an error, every poll returns `None`.
///
/// Dropping the stream drops the source.
pub fn seal(
    before: impl Into<TurnBuilder>,
    source: impl TurnSource + Send + 'static,
) -> TurnStream {
    TurnStream(Box::pin(Sealed {
        source: Some(source),
        turn: before.into(),
        pending_error: None,
        interrupt: None,
        request: RequestState::Unsent,
    }))
}

/// The fields that an event uses come first, so that they share cache lines.
#[pin_project]
#[repr(C)]
struct Sealed<T> {
    interrupt: Option<Box<dyn InterruptTurn>>,
    request: RequestState,
    turn: TurnBuilder,
    /// The source, or `None` once it has ended. The source is dropped before the last event is
    /// yielded.
    #[pin]
    source: Option<T>,
    /// The error to yield once all earlier events have been yielded.
    pending_error: Option<Error>,
}

/// The state of a turn's request, which decides whether an interrupted turn has used tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestState {
    /// The source has not been polled.
    Unsent,
    Sent,
    /// The server has refused the request, and it is sent again after a delay. Until the next
    /// attempt yields something, no tokens are assumed.
    Refused,
}

/// Decides when a turn is interrupted.
pub(crate) trait InterruptTurn: Send {
    /// Returns whether the turn must end now. Called before each poll of the turn's source.
    fn is_requested(&self) -> bool;

    /// Estimates the number of tokens in the turn's request.
    fn estimate_request_tokens(&self) -> u64;
}

impl<T: TurnSource> Stream for Sealed<T> {
    type Item = Result<TurnEvent, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            if let Some(event) = this.turn.next_event() {
                *this.request = match event {
                    TurnEvent::Retrying { .. } => RequestState::Refused,
                    _ => RequestState::Sent,
                };
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(source) = this.source.as_mut().as_pin_mut() else {
                return Poll::Ready(this.pending_error.take().map(Err));
            };
            if let Some(interrupt) = this.interrupt
                && interrupt.is_requested()
            {
                source.as_ref().describe(this.turn);
                this.source.set(None);
                let request = *this.request;
                this.turn.interrupt(|| match request {
                    RequestState::Sent => interrupt.estimate_request_tokens(),
                    RequestState::Unsent | RequestState::Refused => 0,
                });
                continue;
            }
            if *this.request == RequestState::Unsent {
                *this.request = RequestState::Sent;
            }
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
                    // No item may follow `TurnComplete`.
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

/// A stream of a turn whose limits can be set before the turn is read.
trait LimitTurn: Stream<Item = Result<TurnEvent, Error>> + Send {
    fn set_limits(self: Pin<&mut Self>, max_bytes: usize, max_output_tokens: Option<u32>);

    fn set_interrupt(self: Pin<&mut Self>, interrupt: Box<dyn InterruptTurn>);

    fn describe_turn(&self, turn: &mut TurnBuilder);
}

impl<T: TurnSource + Send> LimitTurn for Sealed<T> {
    fn set_limits(self: Pin<&mut Self>, max_bytes: usize, max_output_tokens: Option<u32>) {
        let turn = self.project().turn;
        turn.set_max_bytes(max_bytes);
        turn.set_max_output_tokens(max_output_tokens);
    }

    fn set_interrupt(self: Pin<&mut Self>, interrupt: Box<dyn InterruptTurn>) {
        *self.project().interrupt = Some(interrupt);
    }

    fn describe_turn(&self, turn: &mut TurnBuilder) {
        if let Some(source) = &self.source {
            source.describe(turn);
        }
        turn.describe_like(&self.turn);
    }
}

/// A boxed stream of a turn's events that satisfies the contract described in [`seal`].
///
/// Dropping the stream cancels the turn: the connection is closed, and all work stops.
///
/// ```
/// use futures::TryStreamExt;
/// use turnstream::provider::{Provider, Scripted};
/// use turnstream::{History, Request};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let model = Scripted::new(["Never mind, I have changed my mind."]);
/// let mut turn = model.stream_turn(Request::new(History::empty("h")));
/// while let Some(event) = turn.try_next().await? {
///     if event.text_delta().is_some_and(|text| text.contains("mind")) {
///         break;
///     }
/// }
/// drop(turn); // The rest of the answer is not generated.
/// # Ok(())
/// # }
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct TurnStream(Pin<Box<dyn LimitTurn>>);

impl TurnStream {
    /// Sets the turn's limits, even if the provider [sealed](seal) the turn without the request.
    pub(crate) fn with_limits(mut self, max_bytes: usize, max_output_tokens: Option<u32>) -> Self {
        self.0.as_mut().set_limits(max_bytes, max_output_tokens);
        self
    }

    /// Ends the turn as soon as `interrupt` requests it; see [`TurnBuilder::interrupt`].
    pub(crate) fn interrupted_by(mut self, interrupt: impl InterruptTurn + 'static) -> Self {
        self.0.as_mut().set_interrupt(Box::new(interrupt));
        self
    }

    /// Sets what the turn's provider has reported about the incomplete turn beside its events: the
    /// model, the id of the response, token usage that no event has contained yet, and the facts
    /// that affect its price. A source that wraps this stream calls this method in
    /// [`TurnSource::describe`].
    pub fn describe(&self, turn: &mut TurnBuilder) {
        self.0.describe_turn(turn);
    }

    /// Calls `observe` with each item before yielding it, for example to log a turn that other code
    /// consumes. `observe` must not block, and a panic in it propagates to the consumer.
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

    fn set_interrupt(mut self: Pin<&mut Self>, interrupt: Box<dyn InterruptTurn>) {
        self.turn.0.as_mut().set_interrupt(interrupt);
    }

    fn describe_turn(&self, turn: &mut TurnBuilder) {
        self.turn.describe(turn);
    }
}

impl Stream for TurnStream {
    type Item = Result<TurnEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl_debug!(TurnStream);
