//! One question to one hook: its time, its panics, its errors.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;

use crate::agent::hook::{Hook, HookFuture};
use crate::error::{Error, ErrorKind, panic_message};

/// Asks, and waits for the answer for at most `limit`. The timer is made when the first poll was
/// pending. Dropping the future drops the answer.
pub(super) async fn ask<'a, T>(
    hook: &'a dyn Hook,
    method: &'static str,
    limit: Duration,
    question: impl FnOnce() -> HookFuture<'a, T>,
) -> Result<T, Error> {
    let failed = |error| failed(hook, method, error);
    let mut answer = caught(question).map_err(failed)?;
    let mut timer = None;
    let given = poll_fn(|cx| match caught(|| answer.as_mut().poll(cx)) {
        Ok(Poll::Ready(given)) => Poll::Ready(given),
        Ok(Poll::Pending) => {
            let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
            timer.as_mut().poll(cx).map(|()| Err(late(limit)))
        }
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await;
    // Code of the hook also runs when its future is dropped.
    let dropped = caught(|| drop(answer));
    given.and_then(|given| dropped.map(|()| given)).map_err(failed)
}

/// Runs code of a hook; a panic is an error.
pub(super) fn caught<T>(f: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| {
        Error::new(ErrorKind::Panic, format!("it panicked: {}", panic_message(&*payload)))
    })
}

/// Names the hook and its method in an error.
pub(super) fn failed(hook: &dyn Hook, method: &str, error: Error) -> Error {
    let name = caught(|| hook.name().into_owned()).unwrap_or_else(|_| "without a name".to_owned());
    let message = format!("the hook `{name}` failed in `{method}`: {error}");
    Error::new(ErrorKind::Hook, message).with_source(error)
}

fn late(limit: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("it took longer than {limit:?}"))
}
