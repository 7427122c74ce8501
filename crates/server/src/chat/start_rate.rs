//! Limits how many runs each principal starts.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::failure::Failure;
use crate::authorize::Principal;

/// The times at which each principal has started its last runs.
#[derive(Default)]
pub(super) struct StartRate(Mutex<HashMap<String, VecDeque<Instant>>>);

impl StartRate {
    /// Counts a start, and refuses it if there were too many.
    pub(super) fn add(&self, principal: &Principal, max: usize) -> Result<(), Failure> {
        let mut starts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = Duration::from_mins(1);
        starts.retain(|_, starts| starts.back().is_some_and(|last| last.elapsed() < minute));
        let starts = starts.entry(principal.id().to_owned()).or_default();
        starts.retain(|start| start.elapsed() < minute);
        if starts.len() >= max {
            return Err(Failure::too_many(
                "too many runs and forks were started in the last minute",
            ));
        }
        starts.push_back(Instant::now());
        Ok(())
    }
}
