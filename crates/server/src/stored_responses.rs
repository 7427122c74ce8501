//! The responses that a later request can continue.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use turnstream::History;

/// The maximum number of responses that are stored.
const MAX_RESPONSES: usize = 1_000;

/// The maximum size of the histories that are kept, in bytes. The items that several histories
/// share count several times.
const MAX_BYTES: usize = 256 << 20;

/// Keeps the latest responses in memory.
#[derive(Clone, Default)]
pub(crate) struct StoredResponses(Arc<Mutex<Responses>>);

#[derive(Default)]
struct Responses {
    /// The responses, each with the size of its history.
    by_id: HashMap<String, (StoredResponse, usize)>,
    /// The ids of the responses, oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

/// A response that a later request can continue.
#[derive(Clone)]
pub(crate) struct StoredResponse {
    /// The id of the principal that received the response.
    pub(crate) principal: String,
    /// The agent that made the response.
    pub(crate) model: String,
    pub(crate) history: History,
}

impl StoredResponses {
    /// Keeps a response. The oldest responses are removed if there are too many.
    pub(crate) fn insert(&self, id: String, response: StoredResponse) {
        let bytes = serde_json::to_vec(&response.history).map_or(0, |json| json.len());
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stored.bytes += bytes;
        stored.order.push_back(id.clone());
        stored.by_id.insert(id, (response, bytes));
        while stored.order.len() > 1
            && (stored.order.len() > MAX_RESPONSES || stored.bytes > MAX_BYTES)
        {
            let Some(oldest) = stored.order.pop_front() else { break };
            let removed = stored.by_id.remove(&oldest);
            stored.bytes -= removed.map_or(0, |(_, bytes)| bytes);
        }
    }

    /// Returns a response of this principal.
    pub(crate) fn get(&self, id: &str, principal: &str) -> Option<StoredResponse> {
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (response, _) = stored.by_id.get(id)?;
        (response.principal == principal).then(|| response.clone())
    }
}
