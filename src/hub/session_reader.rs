//! A reader of a session, over all its runs.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, Stream, StreamExt};

use crate::error::Error;
use crate::hub::EventNumber;
use crate::hub::all_hubs_reader::read_all_hubs;
use crate::hub::logs::Logs;
use crate::hub::one_hub_reader::OneHubReader;
use crate::hub::reader::HubEvent;
use crate::session::Session;

/// Reads a session over all its runs: the one that is running, and those that begin while it reads. If the log of the
/// hub has a [directory](crate::hub::EventLog::directory), those of other hubs are among them.
///
/// It begins with the event after a number, or with a snapshot: that of the run, or that of the session if none is
/// running. When a run has ended, it waits for the next. One that has ended before the reader was polled again is read
/// from its log. If that is gone, or if there were several, a snapshot of the session follows. So it does when the
/// process of a run in another hub has died. It ends with an error only: if the store cannot be read, if it did not
/// keep up, or if the hub shuts down or is dropped. Dropping it stops reading; the run continues.
///
/// If the log of several hubs is [unavailable](crate::hub::LogUnavailable), it shows the finished turns that the store
/// has: at once if it has shown nothing yet, else after a second, and again whenever the session has grown. When the
/// log is back, a snapshot of the run follows.
#[must_use = "streams do nothing unless polled"]
pub struct SessionReader {
    session: Session,
    events: BoxStream<'static, Result<HubEvent, Error>>,
}

impl SessionReader {
    pub(super) fn new(logs: Logs, session: Session, after: Option<EventNumber>) -> Self {
        let of = session.clone();
        let events = match logs.directory() {
            Some(directory) => read_all_hubs(logs, directory, session, after),
            None => OneHubReader::new(logs, session, after).boxed(),
        };
        Self { session: of, events }
    }
}

impl Stream for SessionReader {
    type Item = Result<HubEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_next_unpin(cx)
    }
}

impl fmt::Debug for SessionReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionReader").field("session", &self.session).finish_non_exhaustive()
    }
}
