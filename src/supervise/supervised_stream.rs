//! The streams that a supervisor polls.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::{BoxStream, StreamExt};

use crate::agent::{Run, RunHandle};
use crate::error::Error;
use crate::event::Event;
use crate::session::SessionRun;

/// A boxed stream of events that a [supervisor](crate::supervise::Supervisor) polls. A [`Run`] and
/// a [`SessionRun`] convert into it. For another stream, such as a hand-written loop, use
/// [`new`](Self::new). Dropping it drops the stream that it contains.
#[must_use = "streams do nothing unless polled"]
pub struct SupervisedStream {
    events: BoxStream<'static, Result<Event, Error>>,
    /// The handle with which a silent run is interrupted. It does not count as a source of
    /// verdicts.
    handle: Option<Arc<RunHandle>>,
}

impl SupervisedStream {
    /// Boxes a stream of events. A supervisor cannot interrupt such a stream, and drops it instead.
    pub fn new(events: impl Stream<Item = Result<Event, Error>> + Send + 'static) -> Self {
        Self { events: events.boxed(), handle: None }
    }

    /// Returns the handle with which the run is interrupted, if the stream is a run.
    pub(super) fn handle(&self) -> Option<Arc<RunHandle>> {
        self.handle.clone()
    }
}

impl From<Run> for SupervisedStream {
    fn from(run: Run) -> Self {
        let handle = Some(run.internal_handle());
        Self { events: run.boxed(), handle }
    }
}

impl From<SessionRun> for SupervisedStream {
    fn from(run: SessionRun) -> Self {
        let handle = Some(run.internal_handle());
        Self { events: run.boxed(), handle }
    }
}

impl Stream for SupervisedStream {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for SupervisedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisedStream").finish_non_exhaustive()
    }
}
