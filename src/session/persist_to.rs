//! The stream that writes events into a session.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FusedStream;
use pin_project::pin_project;

use crate::error::Error;
use crate::event::Event;
use crate::item::ToolCall;
use crate::session::entry_recorder::EntryRecorder;
use crate::session::restore::EntryFold;
use crate::session::{Lease, LeaseLost, Session};
use crate::tool::Toolkit;

/// Adds the method [`persist_to`](Self::persist_to) to event streams from an agent or a
/// hand-written loop.
pub trait PersistExt: Stream<Item = Result<Event, Error>> + Sized {
    /// Writes the entries that result from each event to `session` before the event is yielded.
    ///
    /// The wrapped stream is not polled during a write. As a result, the user's message is durable
    /// before a request is sent, the model's turn is durable before the turn's tools start, and
    /// each result is durable before its event is yielded. The loop must start with the session's
    /// [history](Session::history).
    ///
    /// The tools of a hand-written loop are unknown. For this reason, its calls are not recorded as
    /// calls to [idempotent](crate::Tool::idempotent) tools, and are never started again after a
    /// crash.
    ///
    /// Call this method after [`finish_with`](crate::EventStreamExt::finish_with), so that the
    /// results for interrupted calls are also written.
    ///
    /// # Drop
    ///
    /// Dropping the stream drops the wrapped stream. A turn that was still streaming is not
    /// written. If a write was in progress, the session reads the store to determine the outcome of
    /// that write before it writes again.
    ///
    /// # Errors
    ///
    /// If the store fails or another process has written to the session, the wrapped stream is
    /// dropped synchronously. The store's error is then the returned stream's last item, and no
    /// `Finished` event precedes it. If the wrapped stream yields an error, the received part of an
    /// open turn is written before the error is yielded.
    ///
    /// ```
    /// use futures::TryStreamExt;
    /// use turnstream::event::AppendReason;
    /// use turnstream::provider::{Provider, Reply, Scripted};
    /// use turnstream::session::{MemoryStore, PersistExt, Session};
    /// use turnstream::{Event, EventStreamExt, Item, Journal, Request, Steps, TurnStreamExt, loop_stream};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([Reply::text("Hello!")]);
    /// let session = Session::open(MemoryStore::new(), "s").await?;
    ///
    /// let mut history = session.history();
    /// let journal = Journal::new(history.clone());
    /// let said = vec![Item::user("Hi")];
    /// history.extend(said.clone());
    /// let said = Event::Appended { why: AppendReason::Input, id: "1".into(), items: said };
    /// let turns = loop_stream(history, |history| {
    ///     let turn = model.stream_turn(Request::new(history));
    ///     turn.on_turn_complete(|_turn| async { Ok(Steps::stop()) })
    /// });
    /// futures::stream::iter([Ok(said)])
    ///     .chain(turns)
    ///     .journal_to(&journal)
    ///     .finish_with(&journal)
    ///     .persist_to(&session)
    ///     .try_for_each(|_event| async { Ok(()) })
    ///     .await?;
    /// assert_eq!(session.history(), journal.history());
    /// # Ok(())
    /// # }
    /// # use futures::StreamExt;
    /// ```
    fn persist_to(self, session: &Session) -> impl Stream<Item = Result<Event, Error>> {
        let (version, restored) = session.cached_fold();
        PersistTo::new(self, session, None, version, restored, None)
    }
}

impl<T: Stream<Item = Result<Event, Error>>> PersistExt for T {}

/// The stream returned by the [`persist_to`](PersistExt::persist_to) method.
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub(crate) struct PersistTo<T> {
    /// The wrapped stream, which is dropped before an error is yielded. `None` after the wrapped
    /// stream has ended.
    #[pin]
    events: Option<T>,
    session: Session,
    /// The session's lease, which is held until this stream ends. `None` for a hand-written loop.
    lease: Option<Lease>,
    /// The version that the next append expects the session to have.
    version: u64,
    recorder: EntryRecorder,
    pending_append: Option<BoxFuture<'static, Result<u64, Error>>>,
    /// The item to yield after the append. `None` means the end of the stream.
    pending_item: Option<Result<Event, Error>>,
}

impl<T> PersistTo<T> {
    pub(super) fn new(
        events: T,
        session: &Session,
        lease: Option<Lease>,
        version: u64,
        restored: EntryFold,
        toolkit: Option<Toolkit>,
    ) -> Self {
        Self {
            events: Some(events),
            session: session.clone(),
            lease,
            version,
            recorder: EntryRecorder::new(restored, toolkit, session.keeps_sub_agents()),
            pending_append: None,
            pending_item: None,
        }
    }

    /// Returns the open calls that have not been started by a tool that was not idempotent.
    pub(super) fn repeatable_open_calls(&self) -> Vec<ToolCall> {
        self.recorder.repeatable_open_calls()
    }
}

impl<T: Stream<Item = Result<Event, Error>>> Stream for PersistTo<T> {
    type Item = Result<Event, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        if let Some(lease) = this.lease
            && lease.poll_lost(cx).is_ready()
        {
            let lost = LeaseLost { id: this.session.id().to_owned(), epoch: lease.epoch() };
            // The wrapped stream is dropped before the lease.
            this.events.set(None);
            (*this.pending_append, *this.pending_item, *this.lease) = (None, None, None);
            return Poll::Ready(Some(Err(lost.into())));
        }
        loop {
            if let Some(writing) = this.pending_append {
                let written = ready!(writing.poll_unpin(cx));
                *this.pending_append = None;
                match written {
                    Ok(version) => *this.version = version,
                    Err(error) => {
                        this.events.set(None);
                        (*this.pending_item, *this.lease) = (None, None);
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                let item = this.pending_item.take();
                if is_last(item.as_ref()) {
                    *this.lease = None;
                }
                return Poll::Ready(item);
            }
            let Some(events) = this.events.as_mut().as_pin_mut() else { return Poll::Ready(None) };
            let polled = ready!(events.poll_next(cx));
            let entries = match &polled {
                Some(Ok(event)) => this.recorder.observe(event),
                Some(Err(_)) => this.recorder.finish(),
                None => {
                    this.events.set(None);
                    this.recorder.finish()
                }
            };
            if entries.is_empty() {
                if is_last(polled.as_ref()) {
                    *this.lease = None;
                }
                return Poll::Ready(polled);
            }
            *this.pending_item = polled;
            let restored = this.recorder.fold().clone();
            *this.pending_append = Some(this.session.append_entries(
                this.lease.clone(),
                *this.version,
                entries,
                restored,
            ));
        }
    }
}

/// Returns whether no entries are written after the entries for this item.
fn is_last(item: Option<&Result<Event, Error>>) -> bool {
    !matches!(item, Some(Ok(event)) if event.outcome().is_none())
}

impl<T: FusedStream<Item = Result<Event, Error>>> FusedStream for PersistTo<T> {
    fn is_terminated(&self) -> bool {
        self.pending_append.is_none() && self.events.as_ref().is_none_or(FusedStream::is_terminated)
    }
}

impl<T> fmt::Debug for PersistTo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistTo")
            .field("session", &self.session)
            .field("version", &self.version)
            .field("ended", &self.events.is_none())
            .finish_non_exhaustive()
    }
}
