//! The log that the claims are about, with its inboxes.

use std::time::Duration;

use tokio::time::Instant;
use turnstream::hub::{CommandInbox, EventLog, Hub, HubBuilder};

/// A log with its inboxes, and the scale of the claims about it.
pub trait Backend: 'static {
    type Events: EventLog + CommandInbox + Clone + 'static;

    /// Returns an empty log with its inboxes.
    fn events() -> impl Future<Output = Self::Events>;

    /// Returns a builder for a hub with an empty log.
    fn builder() -> impl Future<Output = HubBuilder> {
        async {
            let events = Self::events().await;
            Hub::builder().with_backend(events.clone(), events)
        }
    }

    /// Returns a hub with an empty log.
    fn hub() -> impl Future<Output = Hub> {
        async { Self::builder().await.build() }
    }

    /// Returns the future's output if it is ready within a moment.
    fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = Option<T>>;

    /// Waits until the tasks that have work have done it.
    fn let_tasks_run() -> impl Future<Output = ()>;

    /// Returns a duration in a test, scaled if the clock cannot be paused.
    fn time(time: Duration) -> Duration;

    /// Returns the time between two events.
    fn step() -> Duration;

    /// Checks that the expected time has passed.
    fn assert_elapsed(since: Instant, expected: Duration);

    /// Returns the number of repetitions in a test.
    fn count(count: usize) -> usize;

    /// Returns the minimum number of times that readers attach in tests where they do so at random.
    fn least_attached() -> usize;

    /// One case in this number is tested.
    fn stride() -> usize;

    /// Returns the number of seeds of a test with random cases.
    fn seeds() -> u64;
}
