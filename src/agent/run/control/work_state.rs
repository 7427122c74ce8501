//! The work that a run's body has begun, and whose end the run has not seen.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::agent::run::control::flag::Flag;
use crate::event::Event;

/// The state of the work that the run's body does.
#[derive(Default)]
pub(in crate::agent) struct WorkState {
    /// Whether a provider is processing a request whose usage has not been charged yet.
    pub(in crate::agent) request_in_flight: Flag,
    /// Whether the last failed turn was [incomplete](crate::agent::Facts::has_incomplete_turn).
    pub(in crate::agent) has_incomplete_turn: Flag,
    /// Whether the running work may use the time that was reserved for a wrap-up turn, since no
    /// wrap-up turn can follow it or the wrap-up turn has started.
    pub(in crate::agent) wrap_up_time_released: Flag,
    /// Whether the provider has failed to count tokens. It is not asked again.
    pub(in crate::agent) token_count_failed: Flag,
    /// The number of changes to the history that the body has received but the run has not observed
    /// yet.
    unobserved_changes: AtomicUsize,
}

impl WorkState {
    /// Records that the body is receiving an event. If the event changes the history, the run must
    /// observe it before the body uses the history again.
    pub(in crate::agent) fn track_change(&self, event: &Event) {
        if event.changes_items() {
            self.unobserved_changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Records that the run has observed an event.
    pub(in crate::agent) fn mark_change_observed(&self, event: &Event) {
        if event.changes_items() {
            let less = |owed: usize| owed.checked_sub(1);
            let _ = self.unobserved_changes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
    }

    /// Discards the unobserved changes after the body that received them has been dropped.
    pub(in crate::agent) fn clear_unobserved_changes(&self) {
        self.unobserved_changes.store(0, Ordering::Release);
    }

    /// Returns whether the body has received a change to the history that the run has not observed
    /// yet.
    pub(in crate::agent) fn has_unobserved_changes(&self) -> bool {
        self.unobserved_changes.load(Ordering::Acquire) > 0
    }
}
