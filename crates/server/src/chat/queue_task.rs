//! The task that starts runs for a session's queued messages.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::{Either, select};
use futures::{FutureExt, StreamExt};
use turnstream::hub::{Hub, HubEvent, Reservation, ShuttingDown};
use turnstream::item::{Content, Item};
use turnstream::{Error, ErrorKind};

use super::chat_server::{ChatServer, Settings};
use super::failure::Failure;
use super::message_queue::Message;
use super::open_session::OpenSession;
use super::requests::WaitingCalls;
use super::start::{Start, Started};
use super::starts::{
    RETRY_DELAY, STORE_RETRY_DELAY, begin, is_busy_elsewhere, is_transient, new_run,
};
use crate::authorize::Principal;
use crate::slots::Maximum;

/// The continuation of the task after an attempt to start a run.
enum NextAttempt {
    Immediately,
    After(Duration),
    /// When no call waits for approval.
    AfterVerdicts,
    Never,
}

impl ChatServer {
    /// Adds a message to a session's queue. With `GiveUp`, the next run gives up the calls that
    /// wait for approval.
    pub(super) fn enqueue(
        &self,
        principal: &Principal,
        open: &Arc<OpenSession>,
        content: Content,
        run_id: String,
        calls: WaitingCalls,
    ) -> Result<Started, Failure> {
        let limits = &self.0.limits;
        let max =
            Maximum { of_principal: limits.max_queued_bytes_per_principal, of_all: usize::MAX };
        let bytes = self.0.usage.queued_bytes.take(principal, content.text().len(), max);
        let bytes = bytes.map_err(|_| Failure::too_many("too many messages are waiting"))?;
        let (started, principal) = (run_id.clone(), principal.clone());
        let message = Message { run_id, content, principal, _bytes: bytes };
        if open.queue.add(message, calls, limits.max_queued_messages)? {
            let (server, hub) = (Arc::downgrade(&self.0), self.0.hub.clone());
            self.0.queue_tasks.spawn(serve_queue(server, hub, Arc::clone(open)));
        }
        Ok(Started { run: started, is_queued: true })
    }

    /// Starts a run for the first message whose principal may start one.
    async fn start_next(
        &self,
        open: &OpenSession,
        place: Result<Reservation, Error>,
    ) -> NextAttempt {
        let place = match place {
            Ok(place) => self.0.sessions.refresh(&open.session).await.map(|()| place),
            Err(error) => Err(error),
        };
        let place = match place {
            Ok(place) => place,
            Err(error) if error.find_source::<ShuttingDown>().is_some() => {
                open.queue.clear();
                return NextAttempt::Never;
            }
            Err(error) => return self.later(&error),
        };
        let Some((messages, calls)) = open.queue.next() else { return NextAttempt::Never };
        if calls == WaitingCalls::Keep && open.count_waiting_calls() > 0 {
            return NextAttempt::AfterVerdicts;
        }
        let mut admitted = None;
        for message in messages {
            // The principal's other runs end some time.
            if let Ok(slot) = self.check_limits(&message.principal, open).await {
                admitted = Some((message, slot));
                break;
            }
        }
        let Some((message, slot)) = admitted else { return NextAttempt::After(RETRY_DELAY) };
        let start = Start::Say(vec![Item::user(message.content.clone())]);
        let (agent, run_id) = (self.0.agent.clone(), message.run_id.clone());
        let run = new_run(agent, &message.principal, start, run_id, slot);
        let begun = begin(self, open, place, run);
        let begun = AssertUnwindSafe(begun).catch_unwind().await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Panic, "the start of a run has panicked"))
        });
        match begun {
            Ok(owner) => drop(owner.detach()),
            Err(error) if is_busy_elsewhere(&error) => return NextAttempt::After(RETRY_DELAY),
            Err(error) if is_transient(&error) => {
                // After a conflict, the entries of the other program are needed. If they cannot be
                // read, the next attempt reports it.
                drop(open.session.reload().await);
                return self.later(&error);
            }
            Err(error) => self.log_with_context("a queued message was not sent", &error),
        }
        open.queue.remove(&message);
        NextAttempt::Immediately
    }

    fn later(&self, error: &Error) -> NextAttempt {
        self.log_with_context("a queued message is still waiting", error);
        NextAttempt::After(STORE_RETRY_DELAY)
    }
}

/// Starts the queued messages in order, each when the previous run has ended, in this process or in
/// another one, and when no call waits for approval. A principal that may not start a run does not
/// delay the others.
async fn serve_queue(server: Weak<Settings>, hub: Hub, open: Arc<OpenSession>) {
    loop {
        let place = hub.reserve_when_free(open.session.id()).await;
        let Some(server) = server.upgrade().map(ChatServer) else { return open.queue.clear() };
        let next = server.start_next(&open, place).await;
        drop(server);
        match next {
            NextAttempt::Immediately => {}
            NextAttempt::After(delay) => tokio::time::sleep(delay).await,
            // After an error, the next attempt reads the session again.
            NextAttempt::AfterVerdicts => match calls_answered(&hub, &open).await {
                Ok(()) => {}
                Err(_) => tokio::time::sleep(STORE_RETRY_DELAY).await,
            },
            NextAttempt::Never => return,
        }
    }
}

/// Waits until the calls that wait for approval are resumed, in any process, or given up.
async fn calls_answered(hub: &Hub, open: &OpenSession) -> Result<(), Error> {
    let mut events = hub.read_session(&open.session, None);
    let answered = std::pin::pin!(async {
        while let Some(event) = events.next().await {
            match event? {
                HubEvent::Snapshot { snapshot, .. }
                    if snapshot.run().is_none() && !snapshot.pending_calls().is_empty() => {}
                _ => return Ok(()),
            }
        }
        Err(Error::new(ErrorKind::Other, "the session cannot be read"))
    });
    let given_up = std::pin::pin!(open.queue.calls_given_up());
    match select(answered, given_up).await {
        Either::Left((answered, _)) => answered,
        Either::Right(_) => Ok(()),
    }
}
