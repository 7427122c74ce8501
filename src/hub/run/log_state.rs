//! Whether a run's log can be written.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::env::Deadline;
use crate::hub::log::event_log::LogContent;

/// The initial delay between two attempts to reach an unavailable log. The delay doubles after each
/// attempt, up to [`LAST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// The maximum delay between two attempts to reach an unavailable log.
const LAST_RETRY: Duration = Duration::from_secs(5);

/// The state of a run's log.
#[doc = include_str!("log_state.md")]
pub(in crate::hub) enum LogState {
    /// The log has not been opened.
    Unopened,
    /// Entries are appended as they come.
    Available,
    /// The log has not been opened because it is unavailable. The run started without it.
    UnopenedOutage(Outage),
    /// The log is unavailable, and lacks entries.
    Outage(Outage),
}

/// An outage of a log, and the next attempt to write the log.
pub(in crate::hub) struct Outage {
    /// The time of the next attempt. `None` means that the attempt is due immediately.
    retry: Option<Deadline>,
    /// The delay between the next attempt and the attempt after that.
    next_wait: Duration,
    /// The end of the run, if the run ended while the log was unavailable.
    pub(super) end: Option<LogContent>,
}

impl LogState {
    /// Records that the log has been opened: it contains a snapshot, the inbox is open, and the run
    /// has been announced. If the end of the run is still missing, an outage lasts until the end is
    /// written.
    pub(super) fn on_opened(&mut self) {
        *self = match self.take() {
            Self::Unopened => Self::Available,
            Self::UnopenedOutage(outage) => Self::Outage(outage),
            other => other,
        };
    }

    /// Records that all entries have been written.
    pub(super) fn on_written(&mut self) {
        *self = match self.take() {
            Self::Outage(_) => Self::Available,
            other => other,
        };
    }

    /// Records that the log is unavailable. `end` is the end of the run, if it was not written.
    pub(in crate::hub) fn on_unavailable(&mut self, end: Option<LogContent>) {
        *self = match self.take() {
            Self::Unopened => Self::UnopenedOutage(Outage::new(end)),
            Self::Available => Self::Outage(Outage::new(end)),
            other => other,
        };
    }

    /// Records that the log failed for another reason than an outage, so that waiting is of no use.
    pub(super) fn on_failed(&mut self) {
        *self = match self.take() {
            Self::UnopenedOutage(_) => Self::Unopened,
            Self::Outage(_) => Self::Available,
            other => other,
        };
    }

    pub(super) fn outage_mut(&mut self) -> Option<&mut Outage> {
        match self {
            Self::UnopenedOutage(outage) | Self::Outage(outage) => Some(outage),
            Self::Unopened | Self::Available => None,
        }
    }

    pub(super) fn has_outage(&self) -> bool {
        matches!(self, Self::UnopenedOutage(_) | Self::Outage(_))
    }

    /// Returns whether the log must be opened before it can be written.
    pub(super) fn is_unopened(&self) -> bool {
        matches!(self, Self::Unopened | Self::UnopenedOutage(_))
    }

    /// Waits until the next attempt to write an unavailable log is due. Never ready while the log
    /// is available.
    pub(super) fn poll_retry(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.outage_mut().map_or(Poll::Pending, |outage| outage.poll(cx))
    }

    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Unopened)
    }
}

impl Outage {
    fn new(end: Option<LogContent>) -> Self {
        let mut outage = Self { retry: None, next_wait: FIRST_RETRY, end };
        outage.wait_again();
        outage
    }

    pub(super) fn wait_again(&mut self) {
        self.retry = Deadline::try_start(self.next_wait);
        self.next_wait = LAST_RETRY.min(self.next_wait * 2);
    }

    /// Waits until the next attempt to write the log is due.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.retry {
            Some(retry) => retry.poll(cx).map(|_| ()),
            None => Poll::Ready(()),
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.retry.as_ref().is_none_or(Deadline::is_over)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use turnstream_test_support::transitions::{self, Machine};

    impl Machine for LogState {
        fn state(&self) -> String {
            let name = match self {
                Self::Unopened => "unopened",
                Self::Available => "available",
                Self::UnopenedOutage(_) => "unopened outage",
                Self::Outage(_) => "outage",
            };
            name.to_owned()
        }

        fn apply(&mut self, input: &str) -> String {
            let had_outage = self.has_outage();
            match input {
                "the log is opened" => self.on_opened(),
                "the log is unavailable" => self.on_unavailable(None),
                "the log fails" => self.on_failed(),
                "the entries are written" => self.on_written(),
                other => panic!("an unknown input: {other}"),
            }
            let waits = self.has_outage() && !had_outage;
            if waits { "waits".to_owned() } else { "-".to_owned() }
        }
    }

    #[test]
    fn a_log_moves_between_its_states_as_their_table_says() {
        let table = include_str!("log_state.md");
        transitions::check(table, "# The states of a log", || LogState::Unopened);
    }

    #[tokio::test(start_paused = true)]
    async fn the_delay_between_two_attempts_to_reach_a_log_doubles_up_to_five_seconds() {
        let mut outage = Outage::new(None);
        let mut delays = Vec::new();
        for _ in 0..8 {
            let began = tokio::time::Instant::now();
            poll_fn(|cx| outage.poll(cx)).await;
            delays.push(began.elapsed().as_millis());
            outage.wait_again();
        }
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    }
}
