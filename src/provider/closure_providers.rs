//! Creates providers from closures.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use pin_project::pin_project;

use crate::error::Error;
use crate::provider::Provider;
use crate::provider::wrap::first_poll::start_at_first_poll;
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream, seal};
use crate::turn::{ReasoningKind, StopReason, TurnBuilder};
use crate::usage::Usage;

/// Creates a provider from a closure that returns a stream of [`Piece`]s for a request. Use this
/// function for a model that runs in this process or that you call through your own client.
///
/// `model` is the name that the provider's [`model`](Provider::model) method returns. The turn ends
/// with [`Piece::Stop`]. If the stream ends without a `Stop` piece, the turn is incomplete, and
/// none of its tool calls run. The closure is called when the turn is first polled, and dropping
/// the turn drops the stream. Errors in the stream are returned unchanged. The provider does not
/// retry. To add retries, wrap the provider in a [`Retry`](crate::provider::Retry).
///
/// ```
/// use futures::stream;
/// use turnstream::provider::{Piece, from_stream};
/// use turnstream::turn::StopReason;
/// use turnstream::{Agent, Item};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let parrot = from_stream("parrot", |request| {
///     let input = request.history.last().and_then(Item::as_user).map(|it| it.text());
///     let text = input.unwrap_or_default();
///     stream::iter([Ok("You said: ".into()), Ok(Piece::Text(text)), Ok(StopReason::Stop.into())])
/// });
/// let outcome = Agent::new(parrot).run("Hello").outcome().await;
/// assert_eq!(outcome.text, "You said: Hello");
/// # }
/// ```
pub fn from_stream<F, St>(model: &str, ask: F) -> impl Provider + Clone + fmt::Debug + use<F, St>
where
    F: Fn(Request) -> St + Send + Sync + 'static,
    St: Stream<Item = Result<Piece, Error>> + Send + 'static,
{
    FromStream { model: model.into(), make_turn: Arc::new(ask) }
}

/// Creates a provider from a closure that returns a poll function for a request. Each call to the
/// poll function pushes the next part of the turn into a [`TurnBuilder`].
///
/// The poll function is the closure form of [`TurnSource`]. The function returns
/// `Ready(Some(Ok(())))` if it pushed something, `Ready(None)` if nothing more follows, and
/// `Pending` if it has arranged for the task to be woken. To complete the turn, call
/// [`stop`](TurnBuilder::stop) and then [`complete`](TurnBuilder::complete). The closure is called
/// when the turn is first polled, and dropping the turn drops the poll function.
///
/// ```
/// use std::task::Poll;
/// use turnstream::Agent;
/// use turnstream::provider::from_poll_fn;
/// use turnstream::turn::StopReason;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let counter = from_poll_fn("counter", |_request| {
///     let mut n = 0;
///     move |_cx, turn| {
///         n += 1;
///         turn.push_text(0, &format!("{n} "));
///         if n < 3 {
///             return Poll::Ready(Some(Ok(())));
///         }
///         turn.stop(StopReason::Stop, "");
///         Poll::Ready(Some(turn.complete()))
///     }
/// });
/// assert_eq!(Agent::new(counter).run("Count").outcome().await.text, "1 2 3 ");
/// # }
/// ```
pub fn from_poll_fn<F, P>(model: &str, ask: F) -> impl Provider + Clone + fmt::Debug + use<F, P>
where
    F: Fn(Request) -> P + Send + Sync + 'static,
    P: FnMut(&mut Context<'_>, &mut TurnBuilder) -> TurnPoll + Send + 'static,
{
    FromPollFn { model: model.into(), make_turn: Arc::new(ask) }
}

/// A piece of a turn, yielded by the stream of a [`from_stream`] provider.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Piece {
    /// Text to append to the answer.
    Text(String),
    /// Text to append to the model's reasoning.
    Reasoning(String),
    /// A complete tool call.
    ToolCall {
        /// The call's id, to which the tool result refers. An empty id is replaced with a unique
        /// id.
        id: String,
        /// The name of the tool to call.
        name: String,
        /// The call's arguments, as the JSON text of an object.
        arguments: String,
    },
    /// The turn's token usage so far, which replaces any previously reported usage.
    Usage(Usage),
    /// The end of the turn, with the reason why the model stopped.
    Stop(StopReason),
}

impl From<&str> for Piece {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Piece {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<StopReason> for Piece {
    fn from(reason: StopReason) -> Self {
        Self::Stop(reason)
    }
}

/// The provider returned by [`from_stream`]. Cheap to clone.
struct FromStream<F> {
    model: Arc<str>,
    make_turn: Arc<F>,
}

/// The provider returned by [`from_poll_fn`]. Cheap to clone.
struct FromPollFn<F> {
    model: Arc<str>,
    make_turn: Arc<F>,
}

impl<F, St> Provider for FromStream<F>
where
    F: Fn(Request) -> St + Send + Sync + 'static,
    St: Stream<Item = Result<Piece, Error>> + Send + 'static,
{
    fn stream_turn(&self, request: Request) -> TurnStream {
        let turn = TurnBuilder::from(&request);
        let (model, ask) = (Arc::clone(&self.model), Arc::clone(&self.make_turn));
        let model = request.model.clone().map_or(model, Arc::from);
        let pieces = futures::stream::once(async move { ask(request) });
        let pieces = futures::StreamExt::flatten(pieces);
        seal(turn, PieceTurn { stream: pieces, model, index: 0, call_count: 0, open_block: None })
    }

    fn model(&self) -> &str {
        &self.model
    }
}

/// Builds a turn from a stream of pieces.
#[pin_project]
struct PieceTurn<St> {
    #[pin]
    stream: St,
    model: Arc<str>,
    /// The index of the open text or reasoning block, or of the next block if none is open.
    index: u32,
    call_count: u32,
    open_block: Option<OpenBlock>,
}

#[derive(Clone, Copy, PartialEq)]
enum OpenBlock {
    Text,
    Reasoning,
}

impl<St: Stream<Item = Result<Piece, Error>>> TurnSource for PieceTurn<St> {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let this = self.project();
        let Some(piece) = ready!(this.stream.poll_next(cx)?) else { return Poll::Ready(None) };
        turn.set_model(this.model);
        // Consecutive pieces of the same kind belong to the same block.
        let mut index_of = |kind: OpenBlock| {
            if this.open_block.is_some_and(|open| open != kind) {
                *this.index += 1;
            }
            *this.open_block = Some(kind);
            *this.index
        };
        match piece {
            Piece::Text(text) => turn.push_text(index_of(OpenBlock::Text), &text),
            Piece::Reasoning(text) => {
                turn.push_reasoning(index_of(OpenBlock::Reasoning), &text, ReasoningKind::Trace);
            }
            Piece::ToolCall { id, name, arguments } => {
                if this.open_block.take().is_some() {
                    *this.index += 1;
                }
                let key = *this.call_count;
                *this.call_count += 1;
                turn.start_tool_call(key, &id, &name);
                turn.push_tool_call_args(key, &arguments);
                turn.end_tool_call(key);
            }
            Piece::Usage(usage) => turn.set_usage(usage),
            Piece::Stop(reason) => {
                let raw = reason.as_str().to_owned();
                turn.stop(reason, &raw);
                return Poll::Ready(Some(turn.complete()));
            }
        }
        Poll::Ready(Some(Ok(())))
    }
}

impl<F, P> Provider for FromPollFn<F>
where
    F: Fn(Request) -> P + Send + Sync + 'static,
    P: FnMut(&mut Context<'_>, &mut TurnBuilder) -> TurnPoll + Send + 'static,
{
    fn stream_turn(&self, request: Request) -> TurnStream {
        let (model, ask) = (Arc::clone(&self.model), Arc::clone(&self.make_turn));
        start_at_first_poll(request, move |request, turn| {
            turn.set_model(request.model.as_deref().unwrap_or(&model));
            Ok(PollFnTurn(Box::new(ask(request))))
        })
    }

    fn model(&self) -> &str {
        &self.model
    }
}

/// Builds a turn by calling a poll function.
struct PollFnTurn<P>(Box<P>);

impl<P: FnMut(&mut Context<'_>, &mut TurnBuilder) -> TurnPoll> TurnSource for PollFnTurn<P> {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        (self.get_mut().0)(cx, turn)
    }
}

// Derived implementations would require `F: Clone` and `F: Debug`.
macro_rules! impl_clone_and_debug {
    ($($provider:ident),*) => {$(
        impl<F> Clone for $provider<F> {
            fn clone(&self) -> Self {
                Self { model: Arc::clone(&self.model), make_turn: Arc::clone(&self.make_turn) }
            }
        }

        impl<F> fmt::Debug for $provider<F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = stringify!($provider);
                f.debug_struct(name).field("model", &self.model).finish_non_exhaustive()
            }
        }
    )*};
}

impl_clone_and_debug!(FromStream, FromPollFn);
