//! One run of a session.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::FusedStream;
use futures::{Stream, StreamExt};

use crate::agent::{Input, Receipt, Run, RunHandle};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, Outcome, UndeliveredInput};
use crate::item::{History, PendingCall};
use crate::session::Session;
use crate::session::recorded::PersistTo;
use crate::session::restore::EntryFold;
use crate::story::Journal;
use crate::usage::Usage;

/// One run of a session: a stream of its events, each given when what it says is durable.
///
/// It is a [`Run`] whose events are written on their way. If the store fails, or another process has
/// written, what runs is dropped in that call and the error is the last item: no `Finished` comes
/// before it. The error of a run that failed comes after its `Finished`, as with a [`Run`].
///
/// Calls that were answered as interrupted before the run began are told first. They are in its
/// [history](Self::history) from the beginning, which is what a fold of its events begins with, and are
/// none of its outcome's new items.
///
/// Dropping it cancels everything, as with a [`Run`]. A turn that was streaming is not kept; to
/// keep what there is of it, [interrupt](Self::interrupt) the run and pull it to its end.
#[must_use = "streams do nothing unless polled"]
pub struct SessionRun {
    /// What was settled; it is written.
    settled: VecDeque<Event>,
    run: PersistTo<Run>,
    handle: Arc<RunHandle>,
    journal: Journal,
    outcome: Option<Box<Outcome>>,
}

impl SessionRun {
    pub(super) fn new(
        session: &Session,
        version: u64,
        restored: EntryFold,
        settled: Vec<Event>,
        run: Run,
    ) -> Self {
        let (handle, journal) = (run.internal_handle(), run.journal().clone());
        let run = PersistTo::new(run, session, version, restored);
        Self { settled: settled.into(), run, handle, journal, outcome: None }
    }

    /// Hands a value to the tools of this run; see [`Run::with_data`]. Call it before the first poll.
    pub fn with_data<T: Any + Send + Sync>(self, value: T) -> Self {
        self.handle.insert_data(value);
        self
    }

    /// Drives the run to its end. Dropping the future cancels the run. An interactive run waits for a
    /// verdict only while there is a handle to give it, as with [`Run::outcome`].
    ///
    /// # Errors
    ///
    /// What the store fails with. A failure of the run itself is in its outcome:
    /// [`into_result`](Outcome::into_result) makes an error of it.
    pub async fn outcome(mut self) -> Result<Outcome, Error> {
        self.handle.require_handle();
        loop {
            if let Some(outcome) = self.outcome.take() {
                return Ok(*outcome);
            }
            match self.next().await {
                Some(event) => drop(event?),
                None if self.outcome.is_some() => {}
                // It gave its error before.
                None => return Err(Error::new(ErrorKind::Other, "the run was broken off")),
            }
        }
    }

    /// The history as it is, with the turn that streams. What of it is durable is in
    /// [`Session::history`].
    pub fn history(&self) -> History {
        self.handle.history()
    }

    /// The tokens that the run has used so far.
    pub fn usage(&self) -> Usage {
        self.handle.usage()
    }

    /// Ends the run with its next poll, behind what is being written; see
    /// [`RunHandle::interrupt`].
    pub fn interrupt(&self) {
        self.handle.interrupt();
    }

    /// Ends the run behind this turn and its tools; see [`RunHandle::stop_after_turn`].
    pub fn stop_after_turn(&self) {
        self.handle.stop_after_turn();
    }

    /// Says something before the next request; see [`RunHandle::steer`].
    ///
    /// # Errors
    ///
    /// Gives the items back if the run is over.
    pub fn steer(&self, input: impl Into<Input>) -> Result<Receipt, UndeliveredInput> {
        self.handle.steer(input)
    }

    /// Says something when the model stops by itself; see [`RunHandle::follow_up`].
    ///
    /// # Errors
    ///
    /// Gives the items back if the run is over.
    pub fn follow_up(&self, input: impl Into<Input>) -> Result<Receipt, UndeliveredInput> {
        self.handle.follow_up(input)
    }

    /// Makes items of the history void before the next request, or before the run ends; see
    /// [`RunHandle::tombstone`].
    ///
    /// # Errors
    ///
    /// If the run is over, a position is not one of a completed item, or a call has no result yet.
    pub fn tombstone(&self, positions: impl IntoIterator<Item = usize>) -> Result<(), Error> {
        self.handle.tombstone(positions)
    }

    /// Lets a call run that waits for a verdict; see [`RunHandle::approve`].
    ///
    /// # Errors
    ///
    /// If no call like this waits.
    pub fn approve(&self, call: impl Into<PendingCall>) -> Result<(), Error> {
        self.handle.approve(call)
    }

    /// Refuses a call that waits for a verdict; see [`RunHandle::deny`].
    ///
    /// # Errors
    ///
    /// If no call like this waits.
    pub fn deny(&self, call: impl Into<PendingCall>, why: impl Into<String>) -> Result<(), Error> {
        self.handle.deny(call, why)
    }

    /// Does the same from elsewhere, also when an adapter has swallowed the run.
    pub fn handle(&self) -> RunHandle {
        (*self.handle).clone()
    }

    /// The journal that the run writes. It may be an event ahead of what was given out.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}

impl Stream for SessionRun {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(event) = this.settled.pop_front() {
            return Poll::Ready(Some(Ok(event)));
        }
        let polled = this.run.poll_next_unpin(cx);
        if let Poll::Ready(Some(Ok(Event::Finished(outcome)))) = &polled {
            this.outcome = Some(outcome.clone());
        }
        polled
    }
}

impl FusedStream for SessionRun {
    fn is_terminated(&self) -> bool {
        self.settled.is_empty() && self.run.is_terminated()
    }
}

impl fmt::Debug for SessionRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRun")
            .field("run", &self.run)
            .field("finished", &self.outcome.is_some())
            .finish_non_exhaustive()
    }
}
