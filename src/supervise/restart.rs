//! When a failed run is started again.

use std::time::Duration;

/// When a [supervisor](crate::supervise::Supervisor) starts a run again that has failed.
///
/// A run has failed if its stream yields an error, or if the supervisor has ended it because it was
/// [silent](crate::supervise::OnSilence). A run that ends for another reason, such as an exhausted
/// budget, has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The run is never started again.
    Never,
    /// The run is started again after a delay, which doubles after each failure.
    OnFailure {
        /// The delay after the first failure. It doubles with each further failure, up to
        /// `max_delay`.
        min_delay: Duration,
        /// The longest delay, even if it is shorter than `min_delay`.
        max_delay: Duration,
        /// The number of times that the run is started again before the supervisor gives up.
        max_restarts: u32,
        /// A run that lasts at least this long before it fails was healthy: its failure counts as
        /// the first one.
        healthy_after: Duration,
    },
}

impl Restart {
    /// Starts a failed run again: at most 5 times, after delays of 1 second to 1 minute. A run that
    /// lasted for 5 minutes was healthy.
    pub const DEFAULT_ON_FAILURE: Self = Self::OnFailure {
        min_delay: Duration::from_secs(1),
        max_delay: Duration::from_mins(1),
        max_restarts: 5,
        healthy_after: Duration::from_mins(5),
    };
}

/// Counts the failures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FailureCount {
    /// The number of times that the run was started again since it was last healthy.
    pub(super) restarts: u32,
}

impl FailureCount {
    /// Records a failure of a run that has lasted for `lasted`. Returns the delay before the next
    /// start, or `None` if there is no next start.
    pub(super) fn next_delay(&mut self, policy: Restart, lasted: Duration) -> Option<Duration> {
        let Restart::OnFailure { min_delay, max_delay, max_restarts, healthy_after } = policy
        else {
            return None;
        };
        if lasted >= healthy_after {
            self.restarts = 0;
        }
        if self.restarts >= max_restarts {
            return None;
        }
        let factor = 2_u32.saturating_pow(self.restarts);
        self.restarts += 1;
        Some(min_delay.saturating_mul(factor).min(max_delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_ceiling_until_the_supervisor_gives_up() {
        let seconds = Duration::from_secs;
        let policy = Restart::OnFailure {
            min_delay: seconds(2),
            max_delay: seconds(9),
            max_restarts: 4,
            healthy_after: seconds(60),
        };
        let mut count = FailureCount::default();
        let mut delay = |lasted| count.next_delay(policy, seconds(lasted));
        let expected = [Some(2), Some(4), Some(8), Some(9), None, None];
        assert_eq!(expected.map(|_| delay(59)), expected.map(|it| it.map(seconds)));
        assert_eq!([delay(60), delay(0)], [Some(seconds(2)), Some(seconds(4))]);
        assert_eq!(FailureCount::default().next_delay(Restart::Never, seconds(1)), None);
        let many = Restart::OnFailure {
            min_delay: Duration::MAX,
            max_delay: Duration::MAX,
            max_restarts: u32::MAX,
            healthy_after: Duration::MAX,
        };
        let mut count = FailureCount { restarts: 100 };
        assert_eq!(count.next_delay(many, seconds(1)), Some(Duration::MAX));
    }
}
