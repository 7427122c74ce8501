//! Loops that pass your own state from one iteration to the next, and adapters that connect a
//! streaming turn to the loop's next step.
//!
//! The functions in this module spawn no tasks and keep no queues. The next loop body is built when
//! the consumer polls for the next item, and dropping a stream synchronously drops everything that
//! it owns.
//!
//! | to | use |
//! |---|---|
//! | run a body again for each new state | [`loop_stream`], whose body yields [`Step`]s |
//! | inspect the state from outside the loop | [`loop_with_state`] |
//! | run a body for each item of an input stream | [`loop_over`] |
//! | decide the next step when a turn is complete | [`on_turn_complete`](crate::TurnStreamExt::on_turn_complete) |
//! | turn a stream of events into a valid [`TurnStream`] | [`seal`] |
//! | read JSON objects from a model's text as they arrive | [`JsonLines`] |
//!
//! See the [guide](crate::guide::own_loop) for complete loops.

mod iteration;
mod json_lines;
mod loop_over;
mod loop_stream;
mod loop_with_state;
mod on_turn_complete;
mod seal;
mod step;
mod steps;

use std::pin::pin;
use std::sync::Arc;

use futures::future::ready;
use futures::stream::FusedStream;
use futures::{Stream, StreamExt, TryStreamExt};

pub use iteration::LoopEndReason;
pub use json_lines::{JsonLine, JsonLines, LineError};
pub use loop_over::{LoopOver, LoopOverExt, loop_over};
pub use loop_stream::{LoopStream, loop_stream};
pub(crate) use loop_with_state::LoopWithState;
pub use loop_with_state::{StateCell, loop_with_state};
pub(crate) use seal::InterruptTurn;
pub use seal::{TurnPoll, TurnSource, TurnStream, seal};
pub use step::{IntoStep, Step};
pub use steps::Steps;

use crate::error::Error;
use crate::event::Event;
use crate::stream::on_turn_complete::OnTurnComplete;
use crate::turn::{PartialTurn, Text, Turn, TurnBuilder, TurnEvent};

/// An extension trait that provides methods for all streams of turn events.
pub trait TurnStreamExt: Stream<Item = Result<TurnEvent, Error>> {
    /// Forwards every event from a turn as a [`Step::Value`], and then calls `then` with the
    /// finished turn to decide how the loop continues. `then` is called when the consumer polls
    /// again after [`TurnComplete`](TurnEvent::TurnComplete); before `then` is called, the stream
    /// of events is dropped. After the turn's events, the stream yields the steps from the
    /// [`Steps`] that `then` returns.
    ///
    /// If a turn ends without `TurnComplete`, the returned stream yields an
    /// [`IncompleteTurn`](crate::ErrorKind::IncompleteTurn) error. The error carries the partial
    /// turn if the stream of events was [sealed](Self::seal), as streams from providers are. A
    /// panic in `then`, or in the steps that it returns, is caught and yielded as a
    /// [`Panic`](crate::ErrorKind::Panic) error. After an error, the returned stream ends.
    ///
    /// Dropping the returned stream drops its active part: the stream of events, the future from
    /// `then`, or the steps.
    ///
    /// ```
    /// use futures::TryStreamExt;
    /// use turnstream::provider::{Provider, Reply, Scripted};
    /// use turnstream::stream::{Steps, TurnStreamExt, loop_stream};
    /// use turnstream::{History, Item, Request, env::SystemIds};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([Reply::text("Hello!")]);
    /// let mut history = History::new(&SystemIds);
    /// history.push(Item::user("Hi"));
    ///
    /// let events = loop_stream(history, |history| {
    ///     let turn = model.stream_turn(Request::new(history));
    ///     turn.on_turn_complete(|_turn| async { Ok(Steps::stop()) })
    /// });
    /// let events: Vec<_> = events.try_collect().await?;
    /// assert!(events.iter().any(|event| event.turn_complete().is_some()));
    /// # Ok(())
    /// # }
    /// ```
    fn on_turn_complete<'a, Then, Fut, S>(
        self,
        then: Then,
    ) -> impl FusedStream<Item = Result<Step<Event, S>, Error>>
    where
        Self: Sized,
        Then: FnOnce(Arc<Turn>) -> Fut,
        Fut: Future<Output = Result<Steps<'a, S>, Error>>,
    {
        OnTurnComplete::new(self, then)
    }

    /// Enforces the [`TurnStream`] contract on the stream. `before` is the
    /// [`Request`](crate::Request) that the turn answers, or the [`History`](crate::History) that
    /// the turn follows; see [`seal`]. Dropping the returned stream drops this stream.
    fn seal(self, before: impl Into<TurnBuilder>) -> TurnStream
    where
        Self: Sized + Send + 'static,
    {
        seal(before, self)
    }

    /// Yields only errors and the pieces of the turn's text. All other events are dropped,
    /// including refusals. The `Retracted` event, which voids the text so far, is also dropped.
    ///
    /// ```
    /// use futures::TryStreamExt;
    /// use turnstream::provider::{Provider, Reply, Scripted};
    /// use turnstream::stream::TurnStreamExt;
    /// use turnstream::{History, Request, env::SystemIds};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([Reply::text("one two")]);
    /// let mut words = model.stream_turn(Request::new(History::new(&SystemIds))).text_deltas();
    /// while let Some(word) = words.try_next().await? {
    ///     print!("{word}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn text_deltas(self) -> impl Stream<Item = Result<Text, Error>>
    where
        Self: Sized,
    {
        self.filter_map(|event| {
            ready(match event {
                Ok(TurnEvent::TextDelta { text, .. }) => Some(Ok(text)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            })
        })
    }

    /// Parses each line of the turn's text as JSON into a `T`, as soon as the line is complete.
    /// Events without text are dropped, but errors are passed on.
    ///
    /// A line that cannot be parsed is yielded as [`JsonLine::Invalid`], and parsing continues with
    /// the next line. An `Err`, in contrast, always ends the stream. The error in an `Err` either
    /// comes from the stream of events, or has a [`ParseError`](crate::turn::ParseError) as its
    /// source. An error with a `ParseError` as its source means that the lines may be incomplete,
    /// because the model refused to answer or was cut off. A [`JsonLine::Retracted`] voids every
    /// earlier line, and line numbers restart at 1 in the retry.
    ///
    /// Only a line feed ends a line; the last line does not need a line feed. Empty lines and lines
    /// that start with three backticks are skipped. Only the current line is buffered. To also get
    /// the turn, observe the events before calling this method, for example with
    /// `TryStreamExt::inspect_ok`.
    ///
    /// ```
    /// use futures::TryStreamExt;
    /// use turnstream::provider::{Provider, Reply, Scripted};
    /// use turnstream::stream::{JsonLine, TurnStreamExt};
    /// use turnstream::{History, Request, env::SystemIds};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct City {
    ///     name: String,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([Reply::text("{ \"name\": \"Oslo\" }\n{ \"name\": \"Bergen\" }")]);
    /// let turn = model.stream_turn(Request::new(History::new(&SystemIds)));
    /// let mut cities = turn.json_lines::<City>();
    /// while let Some(line) = cities.try_next().await? {
    ///     match line {
    ///         JsonLine::Object(city) => println!("{}", city.name),
    ///         JsonLine::Invalid(error) => println!("not a city: {error}"),
    ///         JsonLine::Retracted => println!("forget all cities so far"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn json_lines<T>(self) -> JsonLines<Self, T>
    where
        Self: Sized,
        T: serde::de::DeserializeOwned,
    {
        JsonLines::new(self)
    }

    /// Drives the turn to completion and returns the finished turn. Dropping the returned future
    /// drops the stream.
    ///
    /// # Errors
    ///
    /// Returns any error from the stream, or an
    /// [`IncompleteTurn`](crate::ErrorKind::IncompleteTurn) error if the stream ends without
    /// `TurnComplete`.
    fn into_turn(self) -> impl Future<Output = Result<Arc<Turn>, Error>>
    where
        Self: Sized,
    {
        async move {
            let mut events = pin!(self);
            let mut partial = PartialTurn::default();
            while let Some(event) = events.try_next().await? {
                match event {
                    TurnEvent::TurnComplete { turn } => return Ok(turn),
                    event => partial.absorb(&event),
                }
            }
            Err(partial.into_error(None))
        }
    }
}

impl<T: Stream<Item = Result<TurnEvent, Error>>> TurnStreamExt for T {}
