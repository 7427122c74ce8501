//! Runs user code, such as a hook or the compactor, with a timeout.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;

use crate::env::{Deadline, DeadlineOutcome, TimeLimit};
use crate::error::{Error, ErrorKind, panic_to_error};

/// The name used in errors for a window's token counter.
pub(super) const TOKEN_COUNTER_NAME: &str = "the counter of the window";

/// Runs the future returned by `make`, for at most `limit`. If the future panics or times out,
/// returns an error that contains the name `whose`. The timer is created only if the future is
/// pending after its first poll.
///
/// Dropping the returned future drops the future that `make` returned.
pub(super) async fn call_with_timeout<'a, T>(
    whose: &str,
    limit: TimeLimit,
    make: impl FnOnce() -> BoxFuture<'a, T>,
) -> Result<T, Error> {
    let mut within = TimedCall::new(whose, limit, make)?;
    poll_fn(|cx| within.poll(whose, cx)).await
}

/// A future that comes from user code, has a timeout, and must be polled manually.
pub(super) struct TimedCall<'a, T> {
    /// The future; `None` once the future has completed or was dropped.
    future: Option<BoxFuture<'a, T>>,
    limit: TimeLimit,
    /// The deadline for the future; `None` until a poll of the future has returned `Poll::Pending`.
    deadline: Option<Deadline>,
}

impl<'a, T> TimedCall<'a, T> {
    pub(super) fn new(
        whose: &str,
        limit: TimeLimit,
        make: impl FnOnce() -> BoxFuture<'a, T>,
    ) -> Result<Self, Error> {
        Ok(Self { future: Some(catch_named_panic(whose, make)?), limit, deadline: None })
    }

    /// Returns the future's output, or an error if the future panics or times out. A call must not
    /// be polled again after it has returned an output.
    pub(super) fn poll(&mut self, whose: &str, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let Some(answer) = &mut self.future else { return Poll::Pending };
        let given = match catch_named_panic(whose, || answer.as_mut().poll(cx)) {
            Ok(Poll::Ready(given)) => Ok(given),
            Ok(Poll::Pending) => {
                let deadline = self.deadline.get_or_insert_with(|| Deadline::new(self.limit));
                Err(timeout_error(whose, self.limit, ready!(deadline.poll(cx))))
            }
            Err(panicked) => Err(panicked),
        };
        // Dropping the future also runs user code.
        let dropped = self.cancel(whose);
        Poll::Ready(given.and_then(|given| dropped.map(|()| given)))
    }

    /// Drops the future if it has not been dropped yet. Returns an error if dropping the future
    /// panics.
    pub(super) fn cancel(&mut self, whose: &str) -> Result<(), Error> {
        let answer = self.future.take();
        catch_named_panic(whose, || drop(answer))
    }
}

/// Calls `f`, which runs user code. If `f` panics, returns an error that contains the name `whose`.
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
