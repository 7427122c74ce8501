//! The messages that wait for the end of a run, and for the verdicts on calls that wait for
//! approval.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use turnstream::item::Content;

use super::failure::Failure;
use crate::authorize::Principal;

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

/// A message that starts the run with this id.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) run_id: String,
    pub(super) content: Content,
    pub(super) principal: Principal,
}

/// The task that starts runs for the queued messages.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum QueueTask {
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

    /// Adds a message, unless `max` of them are waiting. If it returns `true`, the caller has to
    /// start the task.
    pub(super) fn push(&self, message: Message, max: usize) -> Result<bool, Failure> {
        let mut queued = self.lock();
        if queued.messages.len() >= max {
            return Err(Failure::too_many("too many messages are waiting for this run to end"));
        }
        queued.messages.push_back(message);
        let is_stopped = queued.task == QueueTask::Stopped;
        if is_stopped {
            queued.task = QueueTask::Running;
        }
        Ok(is_stopped)
    }

    /// Removes the message whose run has started.
    pub(super) fn pop(&self) {
        self.lock().messages.pop_front();
    }

    /// Removes all messages, and ends the task.
    pub(super) fn clear(&self) {
        *self.lock() = Queued::default();
    }

    /// Sets what the task does with the message that is tried again.
    pub(super) fn restore(&self, task: QueueTask) {
        self.lock().task = task;
    }

    /// Waits until the queue no longer waits for verdicts.
    pub(super) async fn calls_given_up(&self) {
        self.calls_given_up.notified().await;
    }

    /// Lets the next message give up the calls that wait for approval.
    pub(super) fn give_up_calls(&self) {
        self.lock().task = QueueTask::GivingUpCalls;
        self.calls_given_up.notify_one();
    }

    /// Returns the next message, and whether it gives up the calls that wait for approval. Without
    /// a message, the task has ended.
    pub(super) fn next(&self) -> Option<(Message, QueueTask)> {
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
