//! What a tool is told besides its arguments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::turn::Turn;

/// What a tool knows of the call it answers. Owned, so that it can move into a task or a thread.
#[derive(Clone, Debug)]
pub struct ToolContext {
    call_id: String,
    turn: Arc<Turn>,
    idempotency_key: String,
    cancelled: CancelFlag,
}

impl ToolContext {
    pub(super) fn new(
        call_id: &str,
        history_id: &str,
        turn: Arc<Turn>,
        cancelled: CancelFlag,
    ) -> Self {
        let idempotency_key = format!("{history_id}/{call_id}");
        Self { call_id: call_id.to_owned(), turn, idempotency_key, cancelled }
    }

    /// The id of the call.
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    /// The turn that asked for it.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// The same for every attempt at this call, also after a resume: `{history id}/{call id}`.
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// Whether nobody waits for the result any more.
    ///
    /// A future is simply dropped then. This is for work that cannot be dropped: a blocking thread
    /// looks here between two steps.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_set()
    }
}

/// Set when a call's future is dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
