//! Extension methods for event streams.

use futures::Stream;
use futures::stream::FusedStream;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::event::Event;
use crate::journal::Journal;
use crate::journal::finish_with::FinishWith;
use crate::journal::journal_to::JournalTo;
use crate::partial::{EventOrPartial, PartialValues, WithPartials};
#[cfg(feature = "tracing")]
use crate::trace::{RunDescription, WithTracing};
use crate::trace::{Trace, TraceTo};

/// Extension methods for event streams from an agent or a hand-written loop.
pub trait EventStreamExt: Stream<Item = Result<Event, Error>> + Sized {
    /// Records each event in `journal` during the poll that yields the event.
    ///
    /// Dropping the returned stream also drops the wrapped stream, but `journal` keeps the recorded
    /// state.
    ///
    /// ```
    /// use futures::TryStreamExt;
    /// use turnstream::provider::{Provider, Reply, Scripted};
    /// use turnstream::stream::{Steps, TurnStreamExt, loop_stream};
    /// use turnstream::{EventStreamExt, History, Item, Journal, Request, env::SystemIds};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([Reply::text("Hello!")]);
    /// let mut history = History::new(&SystemIds);
    /// history.push(Item::user("Hi"));
    /// let journal = Journal::new(history.clone());
    ///
    /// loop_stream(history, |history| {
    ///     let turn = model.stream_turn(Request::new(history));
    ///     turn.on_turn_complete(|_turn| async { Ok(Steps::stop()) })
    /// })
    /// .journal_to(&journal)
    /// .try_for_each(|_event| async { Ok(()) })
    /// .await?;
    /// assert_eq!(journal.history().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    fn journal_to(self, journal: &Journal) -> impl Stream<Item = Result<Event, Error>> {
        JournalTo::new(self, journal.clone())
    }

    /// Records each step in `trace` during the poll in which the step ends.
    ///
    /// Dropping the returned stream also drops the wrapped stream, but `trace` keeps the recorded
    /// steps. The trace of a hand-written loop is complete only if the loop's events end with
    /// [`Finished`](Event::Finished). For a hand-written loop, call this method after
    /// [`finish_with`](Self::finish_with).
    fn trace_to(self, trace: &Trace) -> impl Stream<Item = Result<Event, Error>> {
        TraceTo::new(self, trace.clone())
    }

    /// Yields structured answers, or the arguments of calls, while the model writes them, between
    /// the events.
    ///
    /// All events and errors are passed on unchanged, in their order. A growing value is yielded
    /// when no further event is ready, and contains everything up to there, so several deltas that
    /// are ready at once result in one value. If all events are ready, as in a replay, no value
    /// grows. The end of a value follows the event that ends it, such as
    /// [`TurnComplete`](crate::TurnEvent::TurnComplete) or
    /// [`Retracted`](crate::TurnEvent::Retracted).
    ///
    /// Nothing is queued: after k items, at most k events were read. Dropping the returned stream
    /// drops the wrapped stream. The [module](crate::partial) has an example.
    fn with_partials<T: DeserializeOwned>(
        self,
        values: PartialValues<T>,
    ) -> impl FusedStream<Item = Result<EventOrPartial<T>, Error>> {
        WithPartials::new(self, values)
    }

    /// Reports the run to the subscriber of the crate `tracing`, for people who read logs.
    ///
    /// The run, each request, each call and each sub-agent has a span with the `gen_ai.*` fields of
    /// OpenTelemetry's conventions. The end of the run, complete turns, results of calls and
    /// requests for approval are events of level `INFO`, failures of level `WARN` or `ERROR`, and
    /// the other steps of level `DEBUG`. The text of messages, arguments, results and errors is
    /// reported only at the level `TRACE`. The logs of a tool are inside of the run's span.
    ///
    /// The methods [`Run::with_tracing`](crate::Run::with_tracing) and
    /// [`SessionRun::with_tracing`](crate::session::SessionRun::with_tracing) do the same, and add
    /// the agent's name and the id of the conversation to the run's span.
    ///
    /// Dropping the returned stream ends all spans. For spans that are sent to a server, see the
    /// crate `turnstream-otel`.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::provider::Scripted;
    /// use turnstream::{Agent, EventStreamExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Hello!"]));
    /// agent.run("Hi").with_tracing().for_each(|_event| async {}).await;
    /// # }
    /// ```
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    fn with_tracing(self) -> impl Stream<Item = Result<Event, Error>> {
        WithTracing::new(self, RunDescription::default())
    }

    /// Ends a hand-written loop in the same way that an agent ends a run. Calls without a result
    /// get an `Interrupted` result, and [`Event::Finished`] is the last event.
    ///
    /// If the wrapped stream yields an `Err`, the error is stored in the outcome and is also
    /// yielded after `Finished`, so that `?` propagates the error. If the wrapped stream ends with
    /// all turns complete and all calls answered, the end reason is `completed`. If a turn is
    /// incomplete or a call is unanswered, the end reason is `stopped`, even if a call still needs
    /// an approval. After a panic, the returned stream yields `None`. If the wrapped stream itself
    /// yields `Finished`, the returned stream passes on that event, then yields the outcome's
    /// error, if any, and then ends. Call this method after [`journal_to`](Self::journal_to) with
    /// the same journal, because the outcome is read from the journal.
    ///
    /// Dropping the returned stream drops the wrapped stream. No end is then reported, and the
    /// journal keeps the events so far.
    fn finish_with(self, journal: &Journal) -> impl FusedStream<Item = Result<Event, Error>> {
        FinishWith::new(self, journal.clone())
    }
}

impl<T: Stream<Item = Result<Event, Error>>> EventStreamExt for T {}
