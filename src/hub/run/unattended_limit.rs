//! The limit for a run without readers.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::env::Deadline;
use crate::hub::settings::Unattended;

/// How long a run may continue without readers.
#[doc = include_str!("unattended_limit.md")]
pub(in crate::hub) enum UnattendedLimit {
    /// The run continues without readers, or it has been interrupted already.
    None,
    /// The run had a reader at the last poll.
    Attended { limit: Duration },
    /// The run has no reader, and is interrupted at the deadline.
    Alone { limit: Duration, deadline: Deadline },
}

impl UnattendedLimit {
    pub(in crate::hub) fn new(setting: Unattended) -> Self {
        match setting {
            Unattended::Continue => Self::None,
            Unattended::InterruptAfter(limit) => Self::Attended { limit },
        }
    }

    /// Becomes ready once, when the run has had no reader for the duration of the limit.
    pub(super) fn poll(&mut self, readers: usize, cx: &mut Context<'_>) -> Poll<()> {
        match (std::mem::replace(self, Self::None), readers) {
            (Self::None, _) => return Poll::Pending,
            (Self::Attended { limit } | Self::Alone { limit, .. }, 1..) => {
                *self = Self::Attended { limit };
                return Poll::Pending;
            }
            (Self::Attended { limit }, 0) => match Deadline::try_start(limit) {
                Some(deadline) => *self = Self::Alone { limit, deadline },
                None => *self = Self::Attended { limit },
            },
            (alone @ Self::Alone { .. }, 0) => *self = alone,
        }
        let Self::Alone { deadline, .. } = self else { return Poll::Pending };
        deadline.poll(cx).map(|_| *self = Self::None)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use turnstream_test_support::transitions::{self, Machine};

    const LIMIT: Duration = Duration::from_mins(1);

    struct Polled(UnattendedLimit, Runtime);

    impl Machine for Polled {
        fn state(&self) -> String {
            let name = match &self.0 {
                UnattendedLimit::None => "none",
                UnattendedLimit::Attended { .. } => "attended",
                UnattendedLimit::Alone { .. } => "alone",
            };
            name.to_owned()
        }

        fn apply(&mut self, input: &str) -> String {
            let Self(limit, runtime) = self;
            let expired = runtime.block_on(async {
                if input.ends_with("after the limit") {
                    tokio::time::advance(LIMIT).await;
                }
                let readers = usize::from(input.contains("with a reader"));
                poll_fn(|cx| Poll::Ready(limit.poll(readers, cx).is_ready())).await
            });
            if expired { "interrupts".to_owned() } else { "-".to_owned() }
        }
    }

    #[test]
    fn a_limit_moves_between_its_states_as_their_table_says() {
        let setting = Unattended::InterruptAfter(LIMIT);
        transitions::check(
            include_str!("unattended_limit.md"),
            "# The states of the limit",
            || {
                let runtime =
                    Builder::new_current_thread().enable_time().start_paused(true).build();
                Polled(UnattendedLimit::new(setting), runtime.unwrap())
            },
        );
    }
}
