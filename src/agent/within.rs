//! Code of the user's own, run for at most some time: a hook, the compactor.

use std::future::poll_fn;
use std::task::Poll;

use futures::future::BoxFuture;

use crate::env::{Alarm, Ring, TimeLimit};
use crate::error::{Error, ErrorKind, catch_panic};

/// Runs a future that `make` makes, for at most `limit`. A panic of it is an error, and so is the
/// end of its time; `whose` names it in both. The timer is made when the first poll was pending.
///
/// Dropping this future drops the other one.
pub(super) async fn within<'a, T>(
    whose: &str,
    limit: TimeLimit,
    make: impl FnOnce() -> BoxFuture<'a, T>,
) -> Result<T, Error> {
    let mut answer = caught(whose, make)?;
    let mut alarm = None;
    let given = poll_fn(|cx| match caught(whose, || answer.as_mut().poll(cx)) {
        Ok(Poll::Ready(given)) => Poll::Ready(Ok(given)),
        Ok(Poll::Pending) => {
            let alarm = alarm.get_or_insert_with(|| Alarm::new(limit));
            alarm.poll(cx).map(|ring| Err(late(whose, limit, ring)))
        }
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await;
    // Its code also runs when it is dropped.
    let dropped = caught(whose, || drop(answer));
    given.and_then(|given| dropped.map(|()| given))
}

/// Runs code of the user's own; a panic is an error that names it.
pub(super) fn caught<T>(whose: &str, f: impl FnOnce() -> T) -> Result<T, Error> {
    catch_panic(f).map_err(|message| Error::panic(whose, &message))
}

fn late(whose: &str, limit: TimeLimit, ring: Ring) -> Error {
    let limit = limit.duration();
    match ring {
        Ring::TimeUp => {
            Error::new(ErrorKind::Timeout, format!("{whose} took longer than {limit:?}"))
        }
        Ring::NoTimer => {
            let message = format!(
                "the time limit of {limit:?} that was set for {whose} needs a tokio runtime with \
                 its time enabled"
            );
            Error::new(ErrorKind::InvalidRequest, message)
        }
    }
}
