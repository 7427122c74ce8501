//! A reader of a session, over all its runs.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{Stream, StreamExt};

use crate::error::Error;
use crate::hub::logs::Logs;
use crate::hub::reader::{HubEvent, Reader};
use crate::hub::{EventNumber, Snapshot};
use crate::session::Session;

/// Reads a session over all its runs: the one that is running, and those that begin while it reads.
///
/// It begins with the event after a number, or with a snapshot: that of the run, or that of the session if none is
/// running. When a run has ended, it waits for the next. It ends with an error only: if the store cannot be read,
/// if it did not keep up, or if the hub shuts down or is dropped. Dropping it stops reading; the run continues.
#[must_use = "streams do nothing unless polled"]
pub struct SessionReader {
    logs: Logs,
    session: Session,
    state: ReadState,
    /// Its place among those that wait for a run.
    waiter: Option<u64>,
}

enum ReadState {
    /// Nothing was read.
    New(Option<EventNumber>),
    Reading(Reader),
    /// No run is there: the session is read from the store.
    Loading(BoxFuture<'static, Result<Snapshot, Error>>),
    Waiting,
    Ended,
}

impl SessionReader {
    pub(super) fn new(logs: Logs, session: Session, after: Option<EventNumber>) -> Self {
        Self { logs, session, state: ReadState::New(after), waiter: None }
    }

    fn load(&self) -> BoxFuture<'static, Result<Snapshot, Error>> {
        let session = self.session.clone();
        async move {
            session.reload().await?;
            Ok(Snapshot::of_session(&session))
        }
        .boxed()
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<HubEvent, Error>>> {
        self.state = ReadState::Ended;
        Poll::Ready(Some(Err(error)))
    }
}

impl Stream for SessionReader {
    type Item = Result<HubEvent, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                ReadState::New(after) => {
                    this.state = match this.logs.read(this.session.id(), after.as_ref()) {
                        Some(reader) => ReadState::Reading(reader),
                        None => ReadState::Loading(this.load()),
                    };
                }
                ReadState::Reading(reader) => match ready!(reader.poll_next_unpin(cx)) {
                    Some(Ok(event)) => return Poll::Ready(Some(Ok(event))),
                    Some(Err(error)) => return this.fail(error),
                    None => this.state = ReadState::Waiting,
                },
                ReadState::Loading(loading) => {
                    let snapshot = match ready!(loading.as_mut().poll(cx)) {
                        Ok(snapshot) => Arc::new(snapshot),
                        Err(error) => return this.fail(error),
                    };
                    this.state = ReadState::Waiting;
                    return Poll::Ready(Some(Ok(HubEvent::Snapshot { number: None, snapshot })));
                }
                ReadState::Waiting => {
                    let key = this.session.id();
                    let registry = this.logs.registry();
                    match ready!(registry.poll_current(key, &mut this.waiter, cx)) {
                        Ok(place) => {
                            this.waiter = None;
                            this.state = ReadState::Reading(this.logs.read_run(place, None));
                        }
                        Err(error) => return this.fail(error),
                    }
                }
                ReadState::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for SessionReader {
    fn drop(&mut self) {
        self.logs.registry().stop_waiting(self.session.id(), self.waiter);
    }
}

impl fmt::Debug for SessionReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionReader").field("session", &self.session).finish_non_exhaustive()
    }
}
