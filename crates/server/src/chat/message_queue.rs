//! The messages that wait for the end of a run, and for the verdicts on calls that wait for
//! approval.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use turnstream::item::Content;

use super::failure::Failure;
use super::requests::WaitingCalls;
use crate::authorize::Principal;
use crate::slots::Slot;

/// A session's messages that wait.
#[derive(Default)]
pub(super) struct MessageQueue {
    state: Mutex<QueueState>,
    /// Notified when the queue no longer waits for verdicts.
    calls_given_up: Notify,
}

#[derive(Default)]
enum QueueState {
    /// No message waits.
    #[default]
    Empty,
    /// A task starts runs for the messages.
    Waiting {
        messages: VecDeque<Arc<Message>>,
        /// The treatment of the calls that wait for approval when the next run starts.
        calls: WaitingCalls,
    },
}

/// A message that starts the run with this id.
pub(super) struct Message {
    pub(super) run_id: String,
    pub(super) content: Content,
    pub(super) principal: Principal,
    /// Counts the message's bytes.
    pub(super) _bytes: Slot,
}

impl MessageQueue {
    /// Returns whether messages are waiting, which a new message does not overtake.
    pub(super) fn is_active(&self) -> bool {
        matches!(*self.lock(), QueueState::Waiting { .. })
    }

    /// Adds a message, and returns whether a task has to be started.
    pub(super) fn add(
        &self,
        message: Message,
        calls: WaitingCalls,
        max: usize,
    ) -> Result<bool, Failure> {
        let mut state = self.lock();
        let is_first = matches!(*state, QueueState::Empty);
        match &mut *state {
            QueueState::Empty => {
                let messages = VecDeque::from([Arc::new(message)]);
                *state = QueueState::Waiting { messages, calls };
            }
            QueueState::Waiting { messages, .. } if messages.len() >= max => {
                let message = "too many messages are waiting for this run to end";
                return Err(Failure::too_many(message));
            }
            QueueState::Waiting { messages, calls: waiting } => {
                messages.push_back(Arc::new(message));
                if calls == WaitingCalls::GiveUp {
                    *waiting = calls;
                }
            }
        }
        if calls == WaitingCalls::GiveUp {
            self.calls_given_up.notify_one();
        }
        Ok(is_first)
    }

    /// Returns the first message of each principal, in order, and the treatment of the calls that
    /// wait for approval. Without a message, the task has ended.
    pub(super) fn next(&self) -> Option<(Vec<Arc<Message>>, WaitingCalls)> {
        let mut state = self.lock();
        let QueueState::Waiting { messages, calls } = &*state else { return None };
        let mut first: Vec<Arc<Message>> = Vec::new();
        for message in messages {
            if first.iter().all(|it| it.principal.id() != message.principal.id()) {
                first.push(Arc::clone(message));
            }
        }
        let calls = *calls;
        if first.is_empty() {
            *state = QueueState::Empty;
            return None;
        }
        Some((first, calls))
    }

    /// Removes a message whose run has started, or cannot start.
    pub(super) fn remove(&self, message: &Arc<Message>) {
        if let QueueState::Waiting { messages, calls } = &mut *self.lock() {
            messages.retain(|it| !Arc::ptr_eq(it, message));
            *calls = WaitingCalls::Keep;
        }
    }

    /// Removes all messages, and ends the task.
    pub(super) fn clear(&self) {
        *self.lock() = QueueState::Empty;
    }

    /// Waits until the queue no longer waits for verdicts.
    pub(super) async fn calls_given_up(&self) {
        self.calls_given_up.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
