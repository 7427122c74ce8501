//! The log that the suite tests.

use turnstream::hub::{CommandInbox, EventLog, Hub, HubBuilder};

/// A log and its inboxes, which the author of an [`EventLog`] and a [`CommandInbox`] implements for
/// the suite.
pub trait Backend: 'static {
    /// The log and its inboxes. They are often the same handle; otherwise, a struct with both
    /// implements the two traits. Clones share the same log.
    type Events: EventLog + CommandInbox + Clone + 'static;

    /// Returns an empty log with its inboxes. The suite runs its tests at the same time, so each
    /// call must return a log of its own.
    fn events() -> impl Future<Output = Self::Events>;

    /// Returns a builder for a hub with an empty log. By default, the hub uses
    /// [`events`](Self::events).
    fn builder() -> impl Future<Output = HubBuilder> {
        async {
            let events = Self::events().await;
            Hub::builder().with_backend(events.clone(), events)
        }
    }

    /// Returns how time passes in the tests. [`Clock::Real`] by default.
    fn clock() -> Clock {
        Clock::Real
    }
}

/// How time passes while the suite tests a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Tokio's clock is paused, as [`hub_suite!`](macro@crate::hub_suite) does with `paused`. For
    /// logs that wait for nothing outside of the program: the suite is thorough, and its times are
    /// exact.
    Paused,
    /// Time passes. For logs that wait for a server: durations are short, the suite runs a sample
    /// of its cases, and the log has 150 ms for each answer.
    Real,
}
