//! What is remembered of the requests that near the window.

use crate::item::History;

/// What is remembered of the requests that near the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionState {
    /// Above how many tokens the history is made shorter next, where that is not the limit.
    threshold_tokens: Option<u64>,
    /// What a provider has counted where `guessed` was the guess.
    reported_tokens: u64,
    estimated_tokens: u64,
    /// How many turns were complete when an item became void last: what a provider has counted in
    /// these counts the item.
    turns_with_stale_count: usize,
}

impl CompactionState {
    /// The same when an item of the history has become void.
    pub(super) fn after_tombstone(self, history: &History) -> Self {
        Self { turns_with_stale_count: history.completed_turns(), ..self }
    }

    /// Whether what a provider has counted in this history still holds.
    pub(super) fn is_count_valid(&self, history: &History) -> bool {
        history.completed_turns() > self.turns_with_stale_count
    }

    /// Above how many tokens the history is made shorter, if that is not `limit`.
    pub(super) fn threshold_tokens(&self, limit: u64) -> u64 {
        self.threshold_tokens.unwrap_or(limit)
    }

    /// The same after a request that was short enough.
    pub(super) fn after_small_request(self, limit: u64) -> Self {
        Self { threshold_tokens: self.threshold_tokens.filter(|above| *above > limit), ..self }
    }

    /// The same after an attempt to make a history shorter of which the provider has counted `counted`
    /// tokens, where the guess was `guess`, and which is to be shorter than `above` from here on.
    pub(super) fn after_attempt(self, counted: Option<u64>, guess: u64, above: u64) -> Self {
        let room = Self { threshold_tokens: Some(above), ..self };
        match counted {
            Some(counted) => Self { reported_tokens: counted, estimated_tokens: guess, ..room },
            None => room,
        }
    }

    /// The same after a compaction of a history that did not fit.
    pub(super) fn after_compaction(self) -> Self {
        Self { threshold_tokens: None, ..self }
    }

    /// A guess, made larger by as much as the last one was too low, at most twice as large: what a
    /// provider has counted besides, such as what it found itself, may be gone.
    pub(super) fn corrected_estimate(self, guess: u64) -> u64 {
        let guessed = self.estimated_tokens.max(1);
        let counted = self.reported_tokens.clamp(guessed, guessed.saturating_mul(2));
        let corrected = u128::from(guess) * u128::from(counted) / u128::from(guessed);
        u64::try_from(corrected).unwrap_or(u64::MAX)
    }
}
