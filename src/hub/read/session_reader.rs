//! Reads a session across all of its runs.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, Stream, StreamExt};

use crate::error::Error;
use crate::hub::EventNumber;
use crate::hub::log::logs::Logs;
use crate::hub::read::all_hubs_reader::read_all_hubs;
use crate::hub::read::one_hub_reader::OneHubReader;
use crate::hub::read::reader::HubEvent;
use crate::session::Session;

/// Reads a session across its runs: the active run, and all runs that start later. If the hub's log
/// provides a [directory](crate::hub::EventLog::directory), runs in other hubs are included.
///
/// The reader starts with the event after a given number, with a snapshot of the active run, or, if
/// no run is active, with a snapshot of the session. When a run has ended, the reader waits for the
/// next run. If the next run has already ended when the reader is polled again, that run is read
/// from its log. The reader skips to a snapshot of the session if the log of the next run was
/// removed, if several runs have ended in the meantime, or if the process of a run in another hub
/// has died.
///
/// The reader ends only with an error: if the store cannot be read, if the reader did not keep up,
/// or if the hub shuts down or is dropped. Dropping the reader does not affect the run.
///
/// If a log that several hubs share is [unavailable](crate::hub::LogUnavailable), the reader yields
/// the turns that the store contains: immediately if it has not yielded anything yet, and otherwise
/// after one second, in which the log may return. The reader yields the turns again whenever the
/// session has grown. Once the log is available again, the reader yields a snapshot of the run.
#[must_use = "streams do nothing unless polled"]
pub struct SessionReader {
    session: Session,
    events: BoxStream<'static, Result<HubEvent, Error>>,
}

impl SessionReader {
    pub(in crate::hub) fn new(logs: Logs, session: Session, after: Option<EventNumber>) -> Self {
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

impl_debug!(SessionReader(it), session = it.session);
