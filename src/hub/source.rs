//! The runs that a hub takes.

use std::fmt;
use std::sync::Arc;

use futures::channel::mpsc;
use futures::stream::{BoxStream, Stream};
use futures::{StreamExt, TryStreamExt};

use crate::agent::{Run, RunHandle};
use crate::error::Error;
use crate::event::Event;
use crate::item::{History, RawJson};
use crate::session::SessionRun;

/// A stream of events for a hub, with the history that it begins with.
///
/// A [`Run`] and a [`SessionRun`] are made into one as they are, before the first poll.
pub struct RunSource {
    pub(super) events: BoxStream<'static, Result<Event, Error>>,
    pub(super) start: History,
    pub(super) starts_at: Option<u64>,
    /// `None` for a stream that takes no commands.
    pub(super) handle: Option<RunHandle>,
    pub(super) run_id: Option<String>,
    /// Set for an attempt at a durable run.
    pub(super) attempt: Option<DurableAttempt>,
}

/// The beginning of an attempt at a durable run.
pub(super) struct DurableAttempt {
    /// The events of the steps that earlier attempts have kept, which the first snapshot contains.
    pub(super) replayed: Vec<Arc<Event>>,
    /// To the attempt.
    pub(super) progress: mpsc::Sender<CallProgress>,
}

/// Progress of a call that runs apart from its run.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "durable"), expect(dead_code, reason = "durable runs read it"))]
pub(crate) struct CallProgress {
    pub(crate) call_id: String,
    pub(crate) data: RawJson,
}

impl RunSource {
    /// A loop of your own, which begins with this history. It takes no commands; to end it, the hub drops it.
    pub fn new(
        history: History,
        events: impl Stream<Item = Result<Event, Error>> + Send + 'static,
    ) -> Self {
        let events = events.boxed();
        Self { events, start: history, starts_at: None, handle: None, run_id: None, attempt: None }
    }

    /// An attempt at a durable run: the events of the attempt that are new, after those that it has replayed.
    ///
    /// Of all commands it takes only interrupts, and the progress of its calls: the others reach it through the engine,
    /// which keeps them. It is not interrupted but dropped when the hub shuts down, since another attempt continues it.
    #[cfg(feature = "durable")]
    pub(crate) fn of_attempt(
        run_id: &str,
        start: History,
        starts_at: u64,
        handle: RunHandle,
        replayed: Vec<Event>,
        progress: mpsc::Sender<CallProgress>,
        events: impl Stream<Item = Result<Event, Error>> + Send + 'static,
    ) -> Self {
        let replayed = replayed.into_iter().map(Arc::new).collect();
        Self {
            starts_at: Some(starts_at),
            handle: Some(handle),
            run_id: Some(run_id.to_owned()),
            attempt: Some(DurableAttempt { replayed, progress }),
            ..Self::new(start, events)
        }
    }

    /// Sets the id of the run; unless set, one is drawn. If a run with this id was begun before, this is the next
    /// attempt at it, and the earlier attempt can append nothing more.
    pub fn with_run_id(mut self, id: impl Into<String>) -> Self {
        self.run_id = Some(id.into());
        self
    }

    /// Calls `look` with each event before it is written to the log, for a [trace](crate::trace::Trace) or for
    /// measurements. The run waits for it.
    pub fn inspect(self, mut look: impl FnMut(&Event) + Send + 'static) -> Self {
        let events = self.events.inspect_ok(move |event| look(event)).boxed();
        Self { events, ..self }
    }
}

impl RunSource {
    /// Calls `look` with the error that the stream of events ends with, before it is written to the log. It has its
    /// sources, such as a [`LeaseLost`](crate::session::LeaseLost); readers on other machines get it without them.
    pub fn inspect_err(self, mut look: impl FnMut(&Error) + Send + 'static) -> Self {
        let events = self.events.inspect_err(move |error| look(error)).boxed();
        Self { events, ..self }
    }
}

impl From<Run> for RunSource {
    fn from(run: Run) -> Self {
        let handle = run.handle();
        Self { handle: Some(handle.clone()), ..Self::new(handle.history(), run) }
    }
}

impl From<SessionRun> for RunSource {
    fn from(run: SessionRun) -> Self {
        let (handle, starts_at) = (run.handle(), Some(run.starts_at()));
        Self { starts_at, handle: Some(handle.clone()), ..Self::new(handle.history(), run) }
    }
}

impl fmt::Debug for RunSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunSource")
            .field("history", &self.start.id())
            .field("run_id", &self.run_id)
            .finish_non_exhaustive()
    }
}
