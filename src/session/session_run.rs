//! Runs of a session.

use std::any::Any;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::FusedStream;
use futures::{Stream, StreamExt};

use crate::agent::{Run, RunHandle, forward_handle_methods};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, Outcome};
use crate::item::{Grant, ToolCall};
use crate::session::persist_to::PersistTo;
use crate::session::restore::EntryFold;
use crate::session::{Lease, Session};
use crate::tool::Toolkit;
#[cfg(feature = "tracing")]
use crate::trace::WithTracing;

/// Runs an agent in a session, and yields the run's events as a stream. Each event is stored
/// durably before it is yielded.
///
/// A session run is a [`Run`] whose events are written to the store before they are yielded. If the
/// store fails, or if another process has written to the session, the run is dropped synchronously.
/// The store's error is then the stream's last item, and no `Finished` event precedes it. If the
/// run itself fails, its error follows `Finished`, as with a [`Run`].
///
/// A session run holds the session's [lease](Lease) until it has yielded
/// [`Finished`](Event::Finished) or an error, or until it is dropped. If the lease is lost before
/// the run ends, the run is dropped, and the last item is an error whose source is
/// [`LeaseLost`](crate::session::LeaseLost). The loss of the lease is detected as soon as the store
/// reports it, and at the next append at the latest.
///
/// The first events report the calls that received an interrupted result before the run started.
/// The results of these calls are in the run's initial [history](Self::history), which is the
/// starting point for a fold over the run's events. However, these results are not among the new
/// items in the run's outcome.
///
/// The run's [`history`](Self::history) and [`journal`](Self::journal) include the turn that is
/// currently streaming, and may already include one event that the stream has not yielded yet.
/// [`Session::history`] returns the durable history.
///
/// Dropping a session run cancels all of its work, as with a [`Run`]. A turn that was still
/// streaming is not stored. To store the partial output of a streaming turn,
/// [interrupt](Self::interrupt) the run and poll it until it ends.
#[must_use = "streams do nothing unless polled"]
pub struct SessionRun {
    /// The events that report the calls that were settled before the run started. The results of
    /// these calls are already stored.
    settle_events: VecDeque<Event>,
    run: PersistTo<Run>,
    handle: Arc<RunHandle>,
    outcome: Option<Box<Outcome>>,
    /// The number of entries in the session when the run was created.
    starts_at: u64,
    /// Whether the session was changed for this run already, and would stay without an answer if
    /// the run did not start.
    has_replaced: bool,
}

impl SessionRun {
    pub(super) fn new(
        session: &Session,
        lease: Lease,
        version: u64,
        restored: EntryFold,
        settled: Vec<Event>,
        run: Run,
        toolkit: &Toolkit,
    ) -> Self {
        let (handle, toolkit) = (run.internal_handle(), toolkit.clone());
        handle.add_grants(restored.grants().iter().cloned());
        let run = PersistTo::new(run, session, Some(lease), version, restored, Some(toolkit));
        Self {
            settle_events: settled.into(),
            run,
            handle,
            outcome: None,
            starts_at: version,
            has_replaced: false,
        }
    }

    /// Sets whether items were tombstoned for this run.
    pub(super) fn set_replaced(&mut self, has_replaced: bool) {
        self.has_replaced = has_replaced;
    }

    /// Returns whether items were tombstoned for this run.
    pub(crate) fn has_replaced(&self) -> bool {
        self.has_replaced
    }

    /// Returns the number of entries in the session when the run was created.
    pub(crate) fn starts_at(&self) -> u64 {
        self.starts_at
    }

    /// Returns the open calls that have not been started by a tool that was not idempotent.
    pub(crate) fn repeatable_open_calls(&self) -> Vec<ToolCall> {
        self.run.repeatable_open_calls()
    }

    /// Passes a value to the tools in this run; see [`Run::with_data`]. Call this method before the
    /// first poll.
    pub fn with_data<T: Any + Send + Sync>(self, value: T) -> Self {
        self.handle.insert_run_data(value);
        self
    }

    /// Reports the run to the subscriber of the crate `tracing`; see [`Run::with_tracing`].
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn with_tracing(self) -> impl Stream<Item = Result<Event, Error>> {
        let description = self.handle.description();
        WithTracing::new(self, description)
    }

    /// Gives the run grants in addition to those of the session; see [`Run::with_grants`]. Call
    /// this method before the first poll.
    pub fn with_grants(self, grants: impl IntoIterator<Item = Grant>) -> Self {
        self.handle.add_grants(grants);
        self
    }

    /// Polls the run until it ends, and returns its outcome. Dropping the returned future cancels
    /// the run. As with [`Run::outcome`], an interactive run waits for verdicts only as long as
    /// another handle exists that can give verdicts.
    ///
    /// # Errors
    ///
    /// Returns the store's errors. If the run itself fails, the outcome contains the error, and
    /// [`into_result`](Outcome::into_result) returns it.
    pub async fn outcome(mut self) -> Result<Outcome, Error> {
        self.handle.require_external_handle();
        loop {
            if let Some(outcome) = self.outcome.take() {
                return Ok(*outcome);
            }
            match self.next().await {
                Some(event) => drop(event?),
                None if self.outcome.is_some() => {}
                // The run has already yielded its error.
                None => return Err(Error::new(ErrorKind::Other, "the run was broken off")),
            }
        }
    }

    /// Returns a new handle to the run; see [`Run::handle`].
    pub fn handle(&self) -> RunHandle {
        (*self.handle).clone()
    }

    /// Returns the run's own handle, which does not count as a source of verdicts.
    pub(crate) fn internal_handle(&self) -> Arc<RunHandle> {
        Arc::clone(&self.handle)
    }

    forward_handle_methods!(handle);
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

impl_debug!(SessionRun(it), run = it.run, finished = it.outcome.is_some());
