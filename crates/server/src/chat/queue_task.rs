//! The task that starts runs for a session's queued messages.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use turnstream::hub::HubEvent;
use turnstream::item::{Content, Item};
use turnstream::{Error, ErrorKind};

use super::chat_server::ChatServer;
use super::failure::Failure;
use super::message_queue::{Message, QueueTask};
use super::open_session::OpenSession;
use super::start::{Start, Started};
use super::starts::{RETRY_DELAY, begin, is_busy_elsewhere};
use crate::authorize::Principal;

/// The delay before a message is tried again that the store could not take.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);

impl ChatServer {
    /// Adds a message to a session's queue.
    pub(super) fn enqueue(
        &self,
        principal: &Principal,
        open: &Arc<OpenSession>,
        content: Content,
        run_id: String,
    ) -> Result<Started, Failure> {
        let message = Message { run_id: run_id.clone(), content, principal: principal.clone() };
        if open.queue.push(message, self.0.limits.max_queued_messages)? {
            tokio::spawn(serve_queue(self.clone(), Arc::clone(open)));
        }
        Ok(Started { run: run_id, is_queued: true })
    }
}

/// Starts the queued messages in order, each when the previous run has ended, in this process or in
/// another one, and when no call waits for approval.
async fn serve_queue(server: ChatServer, open: Arc<OpenSession>) {
    let hub = &server.0.hub;
    loop {
        let place = match hub.reserve_when_free(open.session.id()).await {
            Ok(place) => server.0.sessions.refresh(&open.session).await.map(|()| place),
            Err(error) => Err(error),
        };
        let Some((message, task)) = open.queue.next() else { return };
        let Message { run_id, content, principal } = message;
        let begun = match place {
            Ok(place) if open.count_waiting_calls() > 0 && task != QueueTask::GivingUpCalls => {
                drop(place);
                if let Err(error) = calls_answered(&server, &open).await {
                    server.log_with_context("queued messages were not sent", &error);
                    open.queue.clear();
                    return;
                }
                continue;
            }
            Ok(place) => match server.0.usage.runs.start_run(&principal) {
                Ok(slot) => {
                    let start = Start::Say(vec![Item::user(content)]);
                    let agent = server.agent_of(&principal);
                    begin(&server, &open, place, &agent, start, run_id, Some(slot)).await
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match begun {
            Ok(owner) => drop(owner.detach()),
            // The principal's other runs end some time, and so does a run of another process.
            Err(error) if is_busy_elsewhere(&error) || error.kind() == ErrorKind::RateLimited => {
                open.queue.restore(task);
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Store | ErrorKind::OutcomeUnknown) => {
                open.queue.restore(task);
                server.log_with_context("a queued message is still waiting", &error);
                tokio::time::sleep(STORE_RETRY_DELAY).await;
                continue;
            }
            Err(error) => server.log_with_context("a queued message was not sent", &error),
        }
        open.queue.pop();
    }
}

/// Waits until the calls that wait for approval are resumed, in any process, or given up.
async fn calls_answered(server: &ChatServer, open: &OpenSession) -> Result<(), Error> {
    let mut events = server.0.hub.read_session(&open.session, None);
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
