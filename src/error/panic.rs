//! Catches panics in code that the caller supplied.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use futures::FutureExt;

use crate::error::{Error, ErrorKind};

/// Calls `f`, and returns the panic's message as the error if `f` panics.
pub(crate) fn catch_panic<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(panic_message)
}

/// Calls `f`. If `f` panics, calls `observe` with the panic's message, and continues the panic.
pub(crate) fn observe_panic<T>(f: impl FnOnce() -> T, observe: impl FnOnce(&str)) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        observe(text_of(&*payload));
        resume_unwind(payload)
    })
}

/// Calls `f`, and converts a panic to an error of the given kind. The error message starts with
/// `whose`, which names the code that panicked.
pub(crate) fn panic_to_error<T>(
    kind: ErrorKind,
    whose: &str,
    f: impl FnOnce() -> T,
) -> Result<T, Error> {
    catch_panic(f).map_err(|message| Error::new(kind, format!("{whose} panicked: {message}")))
}

/// The async counterpart of [`panic_to_error`]: polls a future, and converts a panic in any poll to
/// an error of kind [`Panic`](ErrorKind::Panic).
pub(crate) async fn panic_to_error_async<T>(
    whose: &str,
    future: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let ended = AssertUnwindSafe(future).catch_unwind().await;
    ended.unwrap_or_else(|payload| Err(Error::from_panic(whose, &panic_message(payload))))
}

/// Returns the message of a panic, if its payload is a string.
///
/// The payload is dropped, which may itself panic. The payload of that second panic is leaked,
/// because dropping it could panic again, and so on indefinitely.
fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let message = text_of(&*payload).to_owned();
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(again);
    }
    message
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when it is dropped, `self.0` times in a row. Each panic has another `Bomb` as its
    /// payload.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }

    #[test]
    fn a_panic_payload_may_panic_when_dropped() {
        for bombs in 0..3 {
            let caught = catch_panic(|| std::panic::panic_any(Bomb(bombs)));
            assert_eq!(caught, Err::<(), _>("no message".to_owned()));
        }
        assert_eq!(catch_panic(|| panic!("{}", 7)), Err::<(), _>("7".to_owned()));
        assert_eq!(catch_panic(|| panic!("seven")), Err::<(), _>("seven".to_owned()));
        assert_eq!(catch_panic(|| 7), Ok(7));
    }

    #[test]
    fn a_panic_error_names_the_code_that_panicked() {
        let caught = panic_to_error(ErrorKind::Hook, "the policy", || panic!("no {}", 7));
        let error = Result::<(), Error>::unwrap_err(caught);
        assert_eq!((error.kind(), error.message()), (ErrorKind::Hook, "the policy panicked: no 7"));
        let panics = async { panic!("late") };
        let ended: Result<(), Error> =
            panic_to_error_async("the store", panics).now_or_never().unwrap();
        let error = ended.unwrap_err();
        let expected = (ErrorKind::Panic, "the store panicked: late");
        assert_eq!((error.kind(), error.message()), expected);
    }
}
