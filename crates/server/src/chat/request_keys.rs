//! Recognizes requests that are sent again.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::Instant;

use super::failure::Failure;
use super::start::Started;

/// How long an idempotency key is remembered, so that it starts no second run.
const KEY_LIFETIME: Duration = Duration::from_mins(10);

/// The number of keys that are remembered per session. A request with another key is refused.
const MAX_KEYS: usize = 1_000;

/// The keys of requests that have started a run.
#[derive(Default)]
pub(super) struct RequestKeys {
    used: VecDeque<UsedKey>,
    hasher: RandomState,
}

struct UsedKey {
    key: String,
    /// The hash of the request's message, so that large messages are not kept.
    message: u64,
    started: Started,
    at: Instant,
}

impl RequestKeys {
    /// Returns the run that was started by a request with this key, if any.
    pub(super) fn find(
        &mut self,
        key: &str,
        text: Option<&str>,
    ) -> Result<Option<Started>, Failure> {
        self.remove_expired();
        match self.used.iter().find(|used| used.key == key) {
            Some(used) if used.message != self.hasher.hash_one(text) => {
                let message = "another request used this `idempotency-key`";
                Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, message))
            }
            None if self.used.len() >= MAX_KEYS => {
                Err(Failure::too_many("too many runs were started with an `idempotency-key`"))
            }
            used => Ok(used.map(|used| used.started.clone())),
        }
    }

    pub(super) fn add(&mut self, key: String, text: Option<&str>, started: Started) {
        let message = self.hasher.hash_one(text);
        self.used.push_front(UsedKey { key, message, started, at: Instant::now() });
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.remove_expired();
        self.used.is_empty()
    }

    fn remove_expired(&mut self) {
        self.used.retain(|used| used.at.elapsed() < KEY_LIFETIME);
    }
}
