//! Adds matching notes to each request.

use std::sync::Arc;

use crate::context::{Memory, MemoryNote};
use crate::error::Error;
use crate::item::{History, Item};

/// The notes of a [`Memory`] as candidates for a
/// [`ContextInjector`](crate::context::ContextInjector): those that match the user's latest
/// message.
///
/// The memory is searched before each request. If it cannot be read, the request is sent without
/// notes: the [selection](crate::context::ContextSelection) lists the memory as left out with the
/// error, and [`on_failure`](crate::agent::hook::Hook::on_failure) hooks receive the error.
#[derive(Clone)]
pub struct Recall {
    memory: Arc<dyn Memory>,
    max_notes: usize,
}

impl Recall {
    /// Creates a recall that offers at most `max_notes` notes for each request.
    pub fn new(memory: impl Memory + 'static, max_notes: usize) -> Self {
        Self { memory: Arc::new(memory), max_notes }
    }

    /// Returns the notes that match the latest message of the user.
    pub(crate) async fn notes(&self, history: &History) -> Result<Vec<MemoryNote>, Error> {
        let latest = history.live_newest_first().find_map(Item::as_user);
        let Some(message) = latest else { return Ok(Vec::new()) };
        self.memory.search(&message.text(), self.max_notes).await
    }
}

impl_debug!(Recall(it), max_notes = it.max_notes);
