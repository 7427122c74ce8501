//! The settings for a connection.

use std::time::Duration;

/// The settings for a connection.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) prefix: String,
    /// The time after which a run without a heartbeat is considered lost.
    pub(super) lease: Duration,
    /// How long a log is kept after its last entry.
    pub(super) expiry: Duration,
    /// The maximum number of commands that can be queued for a run.
    pub(super) max_waiting: usize,
    /// How long a sender waits for the answer to a command.
    pub(super) answer_limit: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: "turnstream".to_owned(),
            lease: Duration::from_secs(5),
            expiry: Duration::from_mins(10),
            max_waiting: 1_000,
            answer_limit: Duration::from_secs(10),
        }
    }
}

impl Settings {
    pub(super) fn lease_ms(&self) -> u64 {
        to_ms(self.lease)
    }

    /// Returns the expiry time in milliseconds. The expiry time is at least four times the lease,
    /// so that no key expires between two heartbeats.
    pub(super) fn expiry_ms(&self) -> u64 {
        to_ms(self.expiry.max(self.lease.saturating_mul(4)))
    }

    /// Returns the time between two heartbeats.
    pub(super) fn beat(&self) -> Duration {
        self.lease / 3
    }
}

fn to_ms(time: Duration) -> u64 {
    // Redis rejects 0 and values above this maximum.
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 52)
}
