//! Panics of code that was handed in, which stay inside.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code that may panic. The error is the text that it panicked with.
pub(crate) fn catch_panic<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(panic_message)
}

/// The text that code panicked with, where it panicked with one.
///
/// It takes what the code panicked with, since dropping that may panic in turn. What comes of the
/// second panic is leaked: dropping it could go on for ever.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("no message").to_owned();
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(again);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when it is dropped, with a payload like itself as often as the number says.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }

    #[test]
    fn what_code_panicked_with_may_panic_in_its_own_drop() {
        for bombs in 0..3 {
            let caught = catch_panic(|| std::panic::panic_any(Bomb(bombs)));
            assert_eq!(caught, Err::<(), _>("no message".to_owned()));
        }
        assert_eq!(catch_panic(|| panic!("{}", 7)), Err::<(), _>("7".to_owned()));
        assert_eq!(catch_panic(|| panic!("seven")), Err::<(), _>("seven".to_owned()));
        assert_eq!(catch_panic(|| 7), Ok(7));
    }
}
