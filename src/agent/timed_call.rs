//! Code of the user's own, run for at most some time: a hook, the compactor.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;

use crate::env::{Deadline, DeadlineOutcome, TimeLimit};
use crate::error::{Error, ErrorKind, panic_to_error};

/// How the counter of a window is called in errors.
pub(super) const TOKEN_COUNTER_NAME: &str = "the counter of the window";

/// Runs a future that `make` makes, for at most `limit`. A panic of it is an error, and so is the
/// end of its time; `whose` names it in both. The timer is made when the first poll was pending.
///
/// Dropping this future drops the other one.
pub(super) async fn call_with_timeout<'a, T>(
    whose: &str,
    limit: TimeLimit,
    make: impl FnOnce() -> BoxFuture<'a, T>,
) -> Result<T, Error> {
    let mut within = TimedCall::new(whose, limit, make)?;
    poll_fn(|cx| within.poll(whose, cx)).await
}

/// A future of the user's own that may take at most some time, to be polled by hand.
pub(super) struct TimedCall<'a, T> {
    /// `None` once it has answered or was dropped.
    future: Option<BoxFuture<'a, T>>,
    limit: TimeLimit,
    /// `None` until a poll was pending.
    alarm: Option<Deadline>,
}

impl<'a, T> TimedCall<'a, T> {
    pub(super) fn new(
        whose: &str,
        limit: TimeLimit,
        make: impl FnOnce() -> BoxFuture<'a, T>,
    ) -> Result<Self, Error> {
        Ok(Self { future: Some(catch_named_panic(whose, make)?), limit, alarm: None })
    }

    /// The answer, or why there is none. It must not be polled again after that.
    pub(super) fn poll(&mut self, whose: &str, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let Some(answer) = &mut self.future else { return Poll::Pending };
        let given = match catch_named_panic(whose, || answer.as_mut().poll(cx)) {
            Ok(Poll::Ready(given)) => Ok(given),
            Ok(Poll::Pending) => {
                let alarm = self.alarm.get_or_insert_with(|| Deadline::new(self.limit));
                Err(timeout_error(whose, self.limit, ready!(alarm.poll(cx))))
            }
            Err(panicked) => Err(panicked),
        };
        // Its code also runs when it is dropped.
        let dropped = self.cancel(whose);
        Poll::Ready(given.and_then(|given| dropped.map(|()| given)))
    }

    /// Drops the future, if it is still there.
    pub(super) fn cancel(&mut self, whose: &str) -> Result<(), Error> {
        let answer = self.future.take();
        catch_named_panic(whose, || drop(answer))
    }
}

/// Runs code of the user's own; a panic is an error that names it.
pub(super) fn catch_named_panic<T>(whose: &str, f: impl FnOnce() -> T) -> Result<T, Error> {
    panic_to_error(ErrorKind::Panic, whose, f)
}

fn timeout_error(whose: &str, limit: TimeLimit, ring: DeadlineOutcome) -> Error {
    let limit = limit.duration();
    match ring {
        DeadlineOutcome::TimeUp => {
            Error::new(ErrorKind::Timeout, format!("{whose} took longer than {limit:?}"))
        }
        DeadlineOutcome::NoTimer => {
            let message = format!(
                "the time limit of {limit:?} that was set for {whose} needs a tokio runtime with \
                 its time enabled"
            );
            Error::new(ErrorKind::InvalidRequest, message)
        }
    }
}
