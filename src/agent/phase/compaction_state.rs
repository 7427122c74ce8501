//! Defines the data that determines when a history is compacted.

use crate::item::History;

/// The data that a run keeps between requests to determine when its history is compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompactionState {
    /// The token count above which the history is next shortened, if it differs from the limit.
    threshold_tokens: Option<u64>,
    /// The token count that a provider reported for a request with an estimated count of
    /// `estimated_tokens`.
    reported_tokens: u64,
    estimated_tokens: u64,
    /// The number of turns that were complete when an item last became a tombstone. The token
    /// counts that providers reported for these turns still include the item that became a
    /// tombstone.
    turns_with_stale_count: usize,
}

impl CompactionState {
    /// Returns the state after an item in the history has become a tombstone.
    pub(in crate::agent) fn after_tombstone(self, history: &History) -> Self {
        Self { turns_with_stale_count: history.completed_turns(), ..self }
    }

    /// Returns whether the latest token count that a provider reported for this history is still
    /// valid.
    pub(in crate::agent) fn is_count_valid(&self, history: &History) -> bool {
        history.completed_turns() > self.turns_with_stale_count
    }

    /// Returns the token count above which the history is next shortened, which is `limit` by
    /// default.
    pub(in crate::agent) fn threshold_tokens(&self, limit: u64) -> u64 {
        self.threshold_tokens.unwrap_or(limit)
    }

    /// Returns the state after a request that did not exceed the threshold.
    pub(in crate::agent) fn after_small_request(self, limit: u64) -> Self {
        Self { threshold_tokens: self.threshold_tokens.filter(|above| *above > limit), ..self }
    }

    /// Returns the state after an attempt to shorten the history. `counted` is the provider's token
    /// count for the request, `guess` is the estimated count, and `above` is the next threshold.
    pub(in crate::agent) fn after_attempt(
        self,
        counted: Option<u64>,
        guess: u64,
        above: u64,
    ) -> Self {
        let state = Self { threshold_tokens: Some(above), ..self };
        match counted {
            Some(counted) => Self { reported_tokens: counted, estimated_tokens: guess, ..state },
            None => state,
        }
    }

    /// Returns the state after compacting a history that has exceeded the model's context window.
    pub(in crate::agent) fn after_compaction(self) -> Self {
        Self { threshold_tokens: None, ..self }
    }

    /// If the last estimate was too low, scales the given estimate up by the same factor, but at
    /// most by a factor of 2. The factor is capped because a provider's count may include content
    /// that is no longer in the history, such as results from the provider's own search.
    pub(in crate::agent) fn corrected_estimate(self, guess: u64) -> u64 {
        let guessed = self.estimated_tokens.max(1);
        let counted = self.reported_tokens.clamp(guessed, guessed.saturating_mul(2));
        let corrected = u128::from(guess) * u128::from(counted) / u128::from(guessed);
        u64::try_from(corrected).unwrap_or(u64::MAX)
    }
}
