//! The tasks that start runs for queued messages.

use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;

/// The tasks that start runs for queued messages. Dropping them ends the tasks.
#[derive(Default)]
pub(super) struct QueueTasks(Mutex<JoinSet<()>>);

impl QueueTasks {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
