//! The messages that wait for the end of a run, and for the verdicts on calls that wait for
//! approval.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use tokio::sync::Notify;
use turnstream::hub::HubEvent;
use turnstream::item::{Content, Item};
use turnstream::{Error, ErrorKind};

use super::chat_server::ChatServer;
use super::failure::Failure;
use super::open_session::OpenSession;
use super::starts::{RETRY_DELAY, Start, Started, begin, is_busy_elsewhere};
use crate::authorize::Principal;

/// The delay before a message is tried again that the store could not take.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A session's messages that wait.
#[derive(Default)]
pub(super) struct MessageQueue {
    queued: Mutex<Queued>,
    /// Notified when the queue no longer waits for verdicts.
    calls_given_up: Notify,
}

#[derive(Default)]
struct Queued {
    messages: VecDeque<Message>,
    task: QueueTask,
}

#[derive(Clone)]
struct Message {
    run_id: String,
    content: Content,
    principal: Principal,
}

/// The task that starts runs for the queued messages.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum QueueTask {
    #[default]
    Stopped,
    Running,
    /// The task gives up the calls that wait for approval when it starts the next run.
    GivingUpCalls,
}

impl MessageQueue {
    /// Returns whether messages are waiting, which a new message does not overtake.
    pub(super) fn is_active(&self) -> bool {
        self.lock().task != QueueTask::Stopped
    }

    /// Lets the next message give up the calls that wait for approval.
    pub(super) fn give_up_calls(&self) {
        self.lock().task = QueueTask::GivingUpCalls;
        self.calls_given_up.notify_one();
    }

    /// Returns the next message, and whether it gives up the calls that wait for approval. Without
    /// a message, the task has ended.
    fn next(&self) -> Option<(Message, QueueTask)> {
        let mut queued = self.lock();
        let next = queued.messages.front().cloned();
        let task = if next.is_some() { QueueTask::Running } else { QueueTask::Stopped };
        let task = std::mem::replace(&mut queued.task, task);
        next.map(|next| (next, task))
    }

    fn lock(&self) -> MutexGuard<'_, Queued> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChatServer {
    /// Adds a message to a session's queue.
    pub(super) fn enqueue(
        &self,
        principal: &Principal,
        open: &Arc<OpenSession>,
        content: Content,
        run_id: String,
    ) -> Result<Started, Failure> {
        let mut queued = open.queue.lock();
        if queued.messages.len() >= self.0.limits.max_queued_messages {
            return Err(Failure::too_many("too many messages are waiting for this run to end"));
        }
        let principal = principal.clone();
        queued.messages.push_back(Message { run_id: run_id.clone(), content, principal });
        if queued.task == QueueTask::Stopped {
            queued.task = QueueTask::Running;
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
                    server.log(&in_context("queued messages were not sent", &error));
                    *open.queue.lock() = Queued::default();
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
                open.queue.lock().task = task;
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Store | ErrorKind::OutcomeUnknown) => {
                open.queue.lock().task = task;
                server.log(&in_context("a queued message is still waiting", &error));
                tokio::time::sleep(STORE_RETRY_DELAY).await;
                continue;
            }
            Err(error) => server.log(&in_context("a queued message was not sent", &error)),
        }
        open.queue.lock().messages.pop_front();
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
    let given_up = std::pin::pin!(open.queue.calls_given_up.notified());
    match select(answered, given_up).await {
        Either::Left((answered, _)) => answered,
        Either::Right(_) => Ok(()),
    }
}

pub(super) fn in_context(what: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("{what}: {error}")).with_source(error.clone())
}
