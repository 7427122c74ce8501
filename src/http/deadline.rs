//! A limit on waiting that costs no timer while nothing is waited for.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep};

/// A moment at which a wait is over. It may be moved as often as one likes: its one timer is made
/// when there is something to wait for, and set again only when it fires too early.
#[derive(Default)]
pub(super) struct ResettableTimer(Option<Pin<Box<Sleep>>>);

impl ResettableTimer {
    /// Ready when `at` has come. `None` never comes.
    pub(super) fn poll(&mut self, at: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = at else { return Poll::Pending };
        // A task that has done much in this poll is not told by its timer.
        if Instant::now() >= at {
            return Poll::Ready(());
        }
        loop {
            let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
            // A later one than before is looked at when the timer fires.
            if sleep.deadline() > at {
                sleep.as_mut().reset(at);
            }
            ready!(sleep.as_mut().poll(cx));
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(at);
        }
    }
}

impl fmt::Debug for ResettableTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadline").field("waiting", &self.0.is_some()).finish()
    }
}
