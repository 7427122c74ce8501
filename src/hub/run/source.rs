//! Event streams that a hub can run.

use std::sync::Arc;

use futures::channel::mpsc;
use futures::stream::{BoxStream, Stream};
use futures::{StreamExt, TryStreamExt};

use crate::agent::{ObservedEvents, Run, RunHandle, RunObserver};
use crate::error::Error;
use crate::event::Event;
use crate::item::{History, RawJson};
use crate::session::SessionRun;

/// An event stream that a hub can run, together with the history at the start of the stream.
///
/// A [`Run`] or a [`SessionRun`] that has not been polled yet can be converted to a `RunSource`.
pub struct RunSource {
    pub(in crate::hub) events: BoxStream<'static, Result<Event, Error>>,
    pub(in crate::hub) start: History,
    pub(in crate::hub) starts_at: Option<u64>,
    /// Whether the session was changed for this run already.
    pub(in crate::hub) has_replaced: bool,
    /// The run's handle; `None` if the stream accepts no commands.
    pub(in crate::hub) handle: Option<RunHandle>,
    pub(in crate::hub) run_id: Option<String>,
    /// The durable attempt; `None` if the run is not durable.
    pub(in crate::hub) attempt: Option<DurableAttempt>,
}

/// The data required to start an attempt at a durable run.
pub(in crate::hub) struct DurableAttempt {
    /// The events from the steps that earlier attempts recorded. The first snapshot contains these
    /// events.
    pub(in crate::hub) replayed: Vec<Arc<Event>>,
    /// The channel through which the attempt receives the progress of tool calls that are executed
    /// on another worker.
    pub(in crate::hub) progress: mpsc::Sender<CallProgress>,
}

/// The progress of a tool call that is executed on a different worker than its run.
#[derive(Clone, Debug)]
pub(crate) struct CallProgress {
    pub(crate) call_id: String,
    pub(crate) data: RawJson,
}

impl RunSource {
    /// Creates a source from a hand-written loop's event stream and the history that the loop
    /// starts with. The source accepts no commands; the hub ends the loop by dropping the stream.
    pub fn new(
        history: History,
        events: impl Stream<Item = Result<Event, Error>> + Send + 'static,
    ) -> Self {
        let events = events.boxed();
        Self {
            events,
            start: history,
            starts_at: None,
            has_replaced: false,
            handle: None,
            run_id: None,
            attempt: None,
        }
    }

    /// Creates a source from an attempt at a durable run. The source yields only the attempt's new
    /// events; the replayed events are part of the first snapshot.
    ///
    /// The hub passes only interrupts and the progress of tool calls to the attempt directly. All
    /// other commands reach the attempt through the engine, which stores them. When the hub shuts
    /// down, the attempt is dropped rather than interrupted, because another attempt will continue
    /// the run.
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

    /// Sets the run's id. By default, a new id is generated. If a run with this id already exists,
    /// this source becomes the next attempt at that run, and the earlier attempt can no longer
    /// append to the log.
    pub fn with_run_id(mut self, id: impl Into<String>) -> Self {
        self.run_id = Some(id.into());
        self
    }

    /// Lets an observer observe the run, unless the run has started or has an observer of its own.
    pub(in crate::hub) fn observed_by(self, observer: Option<&Arc<dyn RunObserver>>) -> Self {
        let Some(observer) = observer else { return self };
        if let Some(handle) = &self.handle {
            handle.set_default_observer(observer);
            return self;
        }
        let events = ObservedEvents::new(self.events, self.start.clone(), observer).boxed();
        Self { events, ..self }
    }

    /// Calls `look` with each event before the event is written to the log, for example to record a
    /// [trace](crate::trace::Trace) or metrics. The run waits until `look` returns.
    pub fn inspect(self, mut look: impl FnMut(&Event) + Send + 'static) -> Self {
        let events = self.events.inspect_ok(move |event| look(event)).boxed();
        Self { events, ..self }
    }
}

impl RunSource {
    /// Calls `look` with the error that ends the event stream, before the error is written to the
    /// log. The error passed to `look` includes its sources, such as a
    /// [`LeaseLost`](crate::session::LeaseLost). In contrast, readers on other machines receive the
    /// error without its sources.
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
        let has_replaced = run.has_replaced();
        Self {
            starts_at,
            has_replaced,
            handle: Some(handle.clone()),
            ..Self::new(handle.history(), run)
        }
    }
}

impl_debug!(RunSource(it), history = it.start.id(), run_id = it.run_id);
