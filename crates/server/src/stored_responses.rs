//! The responses that a later request can continue.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use turnstream::{History, Outcome};

/// The maximum number of responses that are kept for a principal, and for all.
const MAX_RESPONSES: (usize, usize) = (200, 10_000);

/// The maximum size of the histories that are kept for a principal, and for all, in bytes of JSON.
/// The items that several histories share count several times.
const MAX_BYTES: (usize, usize) = (64 << 20, 512 << 20);

/// Keeps the latest responses in memory.
#[derive(Clone, Default)]
pub(crate) struct StoredResponses(Arc<Mutex<Latest>>);

#[derive(Default)]
struct Latest {
    by_id: HashMap<String, StoredResponse>,
    /// The ids of each principal's responses, and of all, oldest first. Ids that were removed by
    /// the other limit stay in a list until they are the oldest.
    of_principal: HashMap<String, Ids>,
    of_all: Ids,
}

/// The ids of responses, oldest first.
#[derive(Default)]
struct Ids {
    order: VecDeque<String>,
    /// The size of the responses that are still kept.
    bytes: usize,
    /// The number of responses that are still kept.
    count: usize,
}

/// A response that a later request can continue.
#[derive(Clone)]
pub(crate) struct StoredResponse {
    /// The id of the principal that received the response.
    pub(crate) principal: String,
    /// The agent that made the response.
    pub(crate) model: String,
    pub(crate) history: History,
    /// The size of the history and the output, in bytes of JSON.
    pub(crate) bytes: usize,
    /// The items of the response.
    pub(crate) output: Arc<[Value]>,
}

/// Returns the number of bytes of JSON by which a run has extended its history.
pub(crate) fn added_bytes(outcome: &Outcome) -> usize {
    serde_json::to_vec(outcome.new_items()).map_or(0, |json| json.len())
}

impl StoredResponses {
    /// Keeps a response. The oldest responses are removed if there are too many: those of the same
    /// principal first.
    pub(crate) fn insert(&self, id: String, response: StoredResponse) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let principal = response.principal.clone();
        let own = latest.of_principal.entry(principal.clone()).or_default();
        own.add(&id, response.bytes);
        latest.of_all.add(&id, response.bytes);
        latest.by_id.insert(id, response);
        loop {
            let own = latest.of_principal.get_mut(&principal);
            let oldest = match own.and_then(|own| own.take_oldest(MAX_RESPONSES.0, MAX_BYTES.0)) {
                Some(oldest) => Some(oldest),
                None => latest.of_all.take_oldest(MAX_RESPONSES.1, MAX_BYTES.1),
            };
            let Some(oldest) = oldest else { break };
            latest.remove(&oldest);
        }
    }

    /// Returns an item of a response of this principal.
    pub(crate) fn item(&self, id: &str, principal: &str) -> Option<Value> {
        // The id of an item contains the id of its response, as in `msg_{response}_0`.
        let response = id.split_once('_')?.1.rsplit_once('_')?.0;
        let response = self.get(&format!("resp_{response}"), principal)?;
        response.output.iter().find(|item| item["id"] == id).cloned()
    }

    /// Returns a response of this principal.
    pub(crate) fn get(&self, id: &str, principal: &str) -> Option<StoredResponse> {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.by_id.get(id).filter(|response| response.principal == principal).cloned()
    }
}

impl Latest {
    fn remove(&mut self, id: &str) {
        let Some(removed) = self.by_id.remove(id) else { return };
        self.of_all.forget(removed.bytes);
        if let Some(own) = self.of_principal.get_mut(&removed.principal) {
            own.forget(removed.bytes);
            if own.count == 0 {
                self.of_principal.remove(&removed.principal);
            }
        }
    }
}

impl Ids {
    fn add(&mut self, id: &str, bytes: usize) {
        self.order.push_back(id.to_owned());
        self.bytes += bytes;
        self.count += 1;
    }

    fn forget(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.count -= 1;
    }

    /// Takes the oldest id if there are too many. The newest response is always kept.
    fn take_oldest(&mut self, max_count: usize, max_bytes: usize) -> Option<String> {
        let is_full = self.count > max_count || self.bytes > max_bytes && self.count > 1;
        // Ids that the other limit has removed must not grow without bound.
        let has_removed = self.order.len() > self.count.saturating_mul(2) + max_count;
        (is_full || has_removed).then(|| self.order.pop_front()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use turnstream::env::SystemIds;

    use super::*;

    fn response(principal: &str, bytes: usize) -> StoredResponse {
        let history = History::new(&SystemIds);
        let (principal, output) = (principal.into(), Arc::default());
        StoredResponse { principal, model: "m".into(), history, bytes, output }
    }

    #[test]
    fn a_principal_removes_only_its_own_responses() {
        let responses = StoredResponses::default();
        responses.insert("ada".into(), response("ada", 10));
        for n in 0..1_000 {
            responses.insert(n.to_string(), response("bob", 1 << 10));
        }
        assert!(responses.get("ada", "ada").is_some());
        assert!(responses.get("799", "bob").is_none());
        assert!(responses.get("800", "bob").is_some() && responses.get("999", "bob").is_some());
        responses.insert("large".into(), response("bob", MAX_BYTES.0 + 1));
        assert!(responses.get("999", "bob").is_none() && responses.get("large", "bob").is_some());
        let latest = responses.0.lock().unwrap();
        assert_eq!((latest.of_all.count, latest.by_id.len()), (2, 2));
        assert_eq!(latest.of_all.bytes, MAX_BYTES.0 + 11);
    }

    #[test]
    fn all_principals_together_are_limited() {
        let responses = StoredResponses::default();
        for n in 0..20_000 {
            responses.insert(n.to_string(), response(&n.to_string(), 1));
        }
        let latest = responses.0.lock().unwrap();
        assert_eq!((latest.by_id.len(), latest.of_principal.len()), (10_000, 10_000));
        assert!(latest.of_all.order.len() <= 30_001);
    }
}
