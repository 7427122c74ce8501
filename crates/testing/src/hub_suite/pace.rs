//! The scale of the suite's tests: durations and numbers of cases, by the clock of a backend.

use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;
use turnstream::env::{Random, SeededRandom};
use turnstream::hub::Hub;

use crate::hub_suite::backend::{Backend, Clock};

/// How fast and how thorough the tests of a backend are.
pub(super) trait Pace: Backend {
    /// Returns a hub with an empty log.
    async fn hub() -> Hub {
        Self::builder().await.build()
    }

    /// Returns the future's output if it is ready within a moment.
    async fn soon<T>(future: impl Future<Output = T>) -> Option<T> {
        match Self::clock() {
            Clock::Paused => future.now_or_never(),
            Clock::Real => tokio::time::timeout(Duration::from_millis(150), future).await.ok(),
        }
    }

    /// Waits until the tasks that have work have done it.
    async fn let_tasks_run() {
        match Self::clock() {
            Clock::Paused => {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
            Clock::Real => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }

    /// Returns a duration in a test.
    fn time(time: Duration) -> Duration {
        match Self::clock() {
            Clock::Paused => time,
            Clock::Real => time / 30,
        }
    }

    /// Returns the time between two events.
    fn step() -> Duration {
        match Self::clock() {
            Clock::Paused => Duration::from_millis(1),
            Clock::Real => Duration::from_millis(4),
        }
    }

    /// Checks that the expected time has passed.
    fn assert_elapsed(since: Instant, expected: Duration) {
        let elapsed = since.elapsed();
        match Self::clock() {
            Clock::Paused => assert_eq!(elapsed, expected),
            Clock::Real => {
                let latest = expected + Duration::from_secs(2);
                assert!(elapsed >= expected && elapsed < latest, "{elapsed:?}");
            }
        }
    }

    /// Returns the number of repetitions in a test.
    fn count(count: usize) -> usize {
        match Self::clock() {
            Clock::Paused => count,
            Clock::Real => count / 8,
        }
    }

    /// Returns the minimum number of times that readers attach in tests where they do so at random.
    fn least_attached() -> usize {
        match Self::clock() {
            Clock::Paused => 10_000,
            // The run does not wait for its readers, which are slower.
            Clock::Real => 300,
        }
    }

    /// One case in this number is tested.
    fn stride() -> usize {
        match Self::clock() {
            Clock::Paused => 1,
            Clock::Real => 25,
        }
    }

    /// Returns the number of seeds of a test with random cases.
    fn seeds() -> u64 {
        match Self::clock() {
            Clock::Paused => 400,
            Clock::Real => 6,
        }
    }
}

impl<B: Backend> Pace for B {}

/// Returns a random number in `0..sides`.
pub(super) fn roll(random: &SeededRandom, sides: u64) -> u64 {
    random.next_u64() % sides
}
