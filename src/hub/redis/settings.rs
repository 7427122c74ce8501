//! The settings.

use std::time::Duration;

/// The settings of a connection.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) prefix: String,
    /// How long a run lives without a sign of its process.
    pub(super) lease: Duration,
    /// How long a log is kept after its last entry.
    pub(super) expiry: Duration,
    /// How many commands wait for a run.
    pub(super) max_waiting: usize,
    /// How long a command waits for its answer.
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

    /// Never shorter than a run needs to show that it is alive.
    pub(super) fn expiry_ms(&self) -> u64 {
        to_ms(self.expiry.max(self.lease.saturating_mul(4)))
    }

    /// The time between two signs of life.
    pub(super) fn beat(&self) -> Duration {
        self.lease / 3
    }
}

fn to_ms(time: Duration) -> u64 {
    // Redis refuses more, and 0.
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 52)
}
