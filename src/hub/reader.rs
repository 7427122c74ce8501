//! One reader of a run.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::stream::{BoxStream, Stream, StreamExt};

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::hub::event_log::{LogContent, LogEntry};
use crate::hub::registry::RunPlace;
use crate::hub::{EventNumber, Snapshot};

/// One item of a reader.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HubEvent {
    /// Everything so far. It replaces what the reader has of this run.
    Snapshot {
        /// The number to continue after; `None` if no run is working on the session, or if that is not known because the
        /// log is unavailable.
        number: Option<EventNumber>,
        /// Everything so far.
        snapshot: Arc<Snapshot>,
    },
    /// An event of the run.
    Event {
        /// Its number.
        number: EventNumber,
        /// The event.
        event: Arc<Event>,
    },
    /// The stream of the run's events has ended.
    Ended {
        /// The number of the end.
        number: EventNumber,
        /// The error that the stream ended with: that of a run that failed, or the error that stopped it before it had
        /// [finished](Event::Finished).
        error: Option<Error>,
    },
}

impl HubEvent {
    /// The number to continue after.
    pub fn number(&self) -> Option<&EventNumber> {
        match self {
            Self::Snapshot { number, .. } => number.as_ref(),
            Self::Event { number, .. } | Self::Ended { number, .. } => Some(number),
        }
    }
}

impl From<LogEntry> for HubEvent {
    fn from(LogEntry { number, content }: LogEntry) -> Self {
        match content {
            LogContent::Event(event) => Self::Event { number, event },
            LogContent::Snapshot(snapshot) => Self::Snapshot { number: Some(number), snapshot },
            LogContent::End(error) => Self::Ended { number, error },
        }
    }
}

/// Reads one run, up to its end.
///
/// It ends with [`HubEvent::Ended`], or with an error if it cannot read on: [`TooSlow`](crate::hub::TooSlow) if it
/// did not keep up, [`RunLost`](crate::hub::RunLost) if the process of the run has died,
/// [`LogUnavailable`](crate::hub::LogUnavailable) if the log cannot be reached for now, or one that says that the run
/// was dropped. Dropping it stops reading; the run continues.
#[must_use = "streams do nothing unless polled"]
pub struct Reader {
    run: Arc<str>,
    entries: BoxStream<'static, Result<LogEntry, Error>>,
    /// Where it counts as a reader; `None` for a run of another hub.
    place: Option<(Arc<RunPlace>, u64)>,
}

impl Reader {
    pub(super) fn new(
        run: Arc<str>,
        entries: BoxStream<'static, Result<LogEntry, Error>>,
        place: Option<Arc<RunPlace>>,
    ) -> Self {
        let place = place.map(|place| {
            let id = place.add_reader();
            (place, id)
        });
        Self { run, entries, place }
    }

    /// The id of the run.
    pub fn run_id(&self) -> &str {
        &self.run
    }

    /// See [`RunPlace::order`].
    pub(super) fn order(&self) -> u64 {
        self.place.as_ref().map_or(0, |(place, _)| place.order())
    }

    /// The events alone, those of the first snapshot included, for code that reads the events of a run. For those
    /// of the whole run, read it without a number; turns that were complete before have no deltas.
    ///
    /// The error of a run that failed is the last item, as with a [`Run`](crate::Run). A second snapshot is an
    /// error: another attempt at the run has begun, and what was given is void.
    pub fn into_events(self) -> impl Stream<Item = Result<Event, Error>> + Send {
        let mut is_first = true;
        self.flat_map(move |read| {
            let is_first = std::mem::replace(&mut is_first, false);
            let events: Vec<Result<Event, Error>> = match read {
                Ok(HubEvent::Event { event, .. }) => vec![Ok(Event::clone(&event))],
                Ok(HubEvent::Snapshot { snapshot, .. }) if is_first => {
                    snapshot.events().iter().map(|event| Ok(Event::clone(event))).collect()
                }
                Ok(HubEvent::Snapshot { .. }) => {
                    let message = "another attempt at the run has begun";
                    vec![Err(Error::new(ErrorKind::Conflict, message))]
                }
                Ok(HubEvent::Ended { error, .. }) => error.into_iter().map(Err).collect(),
                Err(error) => vec![Err(error)],
            };
            futures::stream::iter(events)
        })
    }
}

impl Stream for Reader {
    type Item = Result<HubEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let entry = ready!(self.entries.poll_next_unpin(cx));
        Poll::Ready(entry.map(|entry| entry.map(HubEvent::from)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some((place, id)) = &self.place {
            place.remove_reader(*id);
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("run", &self.run).finish_non_exhaustive()
    }
}
