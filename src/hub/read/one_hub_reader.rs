//! Reads a session across its runs in a single hub.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{Stream, StreamExt};

use crate::error::Error;
use crate::hub::log::logs::Logs;
use crate::hub::read::reader::{HubEvent, Reader};
use crate::hub::run::registry::NextRun;
use crate::hub::{EventNumber, Snapshot};
use crate::session::Session;

/// Reads a session across all of its runs in a single hub.
pub(in crate::hub) struct OneHubReader {
    logs: Logs,
    session: Session,
    state: ReadState,
    /// The order number of the last run that was read or that is included in the session's
    /// snapshot.
    seen: u64,
    /// The id of this reader among the readers that wait for a run.
    waiter: Option<u64>,
}

enum ReadState {
    /// No item has been read yet.
    New(Option<EventNumber>),
    Reading(Reader),
    /// No run is active, and the session is being loaded from the store.
    Loading(BoxFuture<'static, Result<Snapshot, Error>>),
    Waiting,
    Ended,
}

impl OneHubReader {
    pub(in crate::hub) fn new(logs: Logs, session: Session, after: Option<EventNumber>) -> Self {
        logs.registry().follow(session.id());
        Self { logs, session, state: ReadState::New(after), seen: 0, waiter: None }
    }

    fn read(&mut self, reader: Reader) {
        self.seen = reader.order();
        self.state = ReadState::Reading(reader);
    }

    /// Loads the session, which includes all runs up to the one with the order number `last`. Runs
    /// that start while the session is being loaded are read after it has been loaded.
    fn load(&mut self, last: u64) {
        self.seen = last;
        self.state = ReadState::Loading(self.load_session());
    }

    fn load_session(&self) -> BoxFuture<'static, Result<Snapshot, Error>> {
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

impl Stream for OneHubReader {
    type Item = Result<HubEvent, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                ReadState::New(after) => {
                    let key = this.session.id();
                    // `last` is read before the registry is asked for a run, because a run may
                    // start in between.
                    let last = this.logs.registry().last_order(key);
                    match this.logs.read(key, after.as_ref()) {
                        Some(reader) => this.read(reader),
                        None => this.load(last),
                    }
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
                    match ready!(registry.poll_next(key, this.seen, &mut this.waiter, cx)) {
                        Ok(NextRun::Begun(hub_run)) => this.read(this.logs.read_run(hub_run, None)),
                        Ok(NextRun::Missed(last)) => this.load(last),
                        Err(error) => return this.fail(error),
                    }
                }
                ReadState::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for OneHubReader {
    fn drop(&mut self) {
        let registry = self.logs.registry();
        registry.stop_waiting(self.session.id(), self.waiter);
        registry.unfollow(self.session.id());
    }
}
