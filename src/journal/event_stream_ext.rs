//! The methods of a stream of events.

use futures::Stream;

use crate::error::Error;
use crate::event::Event;
use crate::journal::{FinishWith, Journal, JournalTo};
use crate::trace::{Trace, TraceTo};

/// Methods on any stream of events, an agent's or a hand-written loop's.
pub trait EventStreamExt: Stream<Item = Result<Event, Error>> + Sized {
    /// Writes every event into `journal`, in the poll in which it passes.
    ///
    /// Dropping the stream drops what is below it; the journal stays as it is.
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
    fn journal_to(self, journal: &Journal) -> JournalTo<Self> {
        JournalTo::new(self, journal.clone())
    }

    /// Writes every step into `trace`, in the poll in which it ends.
    ///
    /// Dropping the stream drops what is below it; the trace stays as it is. The trace of a
    /// hand-written loop has an end only if its events end with [`Finished`](Event::Finished): call this
    /// after [`finish_with`](Self::finish_with).
    fn trace_to(self, trace: &Trace) -> TraceTo<Self> {
        TraceTo::new(self, trace.clone())
    }

    /// Gives a hand-written loop its ending, as an agent has one: calls that have no result are
    /// answered as interrupted, and [`Event::Finished`] comes last.
    ///
    /// An `Err` becomes the outcome's error; it follows `Finished`, so that `?` propagates it. An end
    /// with every turn complete and every call answered is `completed`, else `stopped`, also if a
    /// call still needed an approval. After a panic comes `None`, and after a `Finished` of the
    /// events' own its error, if it has one, and then `None`. Use it after
    /// [`journal_to`](Self::journal_to) with the same journal: the outcome is read from there.
    fn finish_with(self, journal: &Journal) -> FinishWith<Self> {
        FinishWith::new(self, journal.clone())
    }
}

impl<T: Stream<Item = Result<Event, Error>>> EventStreamExt for T {}
