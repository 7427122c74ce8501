//! One run of a session.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::FusedStream;
use futures::{Stream, StreamExt};

use crate::agent::{Run, RunHandle};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, Outcome};
use crate::session::persist_to::PersistTo;
use crate::session::restore::EntryFold;
use crate::session::{Lease, Session};

/// One run of a session: a stream of its events, each given when what it says is durable.
///
/// It is a [`Run`] whose events are written on their way. If the store fails, or another process has
/// written, what runs is dropped in that call and the error is the last item: no `Finished` comes
/// before it. The error of a run that failed comes after its `Finished`, as with a [`Run`].
///
/// It has the [lease](Lease) of the session until it has yielded [`Finished`](Event::Finished) or an error, or is dropped.
/// If the lease is lost before, what runs is dropped and an error whose source is
/// [`LeaseLost`](crate::session::LeaseLost) is the last item: at the latest by the next append, and earlier where the
/// store notices it.
///
/// Calls that were answered as interrupted before the run began are told first. They are in its
/// [history](RunHandle::history) from the beginning, which is what a fold of its events begins with, and are
/// none of its outcome's new items.
///
/// Like a [`Run`] it dereferences to its [`RunHandle`]. The history and the journal there have the turn
/// that streams, and may be an event ahead of what was yielded; what is durable is in
/// [`Session::history`].
///
/// Dropping it cancels everything, as with a [`Run`]. A turn that was streaming is not kept; to
/// keep what there is of it, [interrupt](RunHandle::interrupt) the run and pull it to its end.
#[must_use = "streams do nothing unless polled"]
pub struct SessionRun {
    /// What was settled; it is written.
    settle_events: VecDeque<Event>,
    run: PersistTo<Run>,
    handle: Arc<RunHandle>,
    outcome: Option<Box<Outcome>>,
    /// How many entries the session had.
    #[cfg(feature = "hub")]
    starts_at: u64,
}

impl SessionRun {
    pub(super) fn new(
        session: &Session,
        lease: Lease,
        version: u64,
        restored: EntryFold,
        settled: Vec<Event>,
        run: Run,
    ) -> Self {
        let handle = run.internal_handle();
        let run = PersistTo::new(run, session, Some(lease), version, restored);
        Self {
            settle_events: settled.into(),
            run,
            handle,
            outcome: None,
            #[cfg(feature = "hub")]
            starts_at: version,
        }
    }

    /// How many entries the session had when it was made.
    #[cfg(feature = "hub")]
    pub(crate) fn starts_at(&self) -> u64 {
        self.starts_at
    }

    /// Hands a value to the tools of this run; see [`Run::with_data`]. Call it before the first poll.
    pub fn with_data<T: Any + Send + Sync>(self, value: T) -> Self {
        self.handle.insert_run_data(value);
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
        self.handle.require_external_handle();
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

    /// A handle of its own; see [`Run::handle`].
    pub fn handle(&self) -> RunHandle {
        (*self.handle).clone()
    }
}

/// The owner of a run acts on it through its [`RunHandle`].
impl Deref for SessionRun {
    type Target = RunHandle;

    fn deref(&self) -> &RunHandle {
        &self.handle
    }
}

impl Stream for SessionRun {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(event) = this.settle_events.pop_front() {
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
        self.settle_events.is_empty() && self.run.is_terminated()
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
