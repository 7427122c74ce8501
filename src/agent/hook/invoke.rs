//! Calls a single hook and handles timeouts, panics and errors.

use crate::agent::State;
use crate::agent::hook::{Hook, HookFuture};
use crate::agent::timed_call::{self, call_with_timeout};
use crate::env::TimeLimit;
use crate::error::{Error, ErrorKind};

/// The placeholder for the hook's name in error messages whose surrounding text already names the
/// hook.
pub(super) const HOOK_NAME_IN_ERRORS: &str = "it";

/// Calls a hook method, and waits at most `limit` for its answer. Dropping the returned future
/// drops the hook's future.
pub(super) async fn invoke_hook<'a, T>(
    hook: &'a dyn Hook,
    method: &'static str,
    state: &State,
    limit: TimeLimit,
    question: impl FnOnce() -> HookFuture<'a, T>,
) -> Result<T, Error> {
    let answer = call_with_timeout(HOOK_NAME_IN_ERRORS, limit, question).await;
    answer.and_then(|answer| answer).map_err(|error| hook_error(hook, method, state, error))
}

/// Runs a hook's code, and returns any panic as an error.
pub(super) fn catch_hook_panic<T>(f: impl FnOnce() -> T) -> Result<T, Error> {
    timed_call::catch_named_panic(HOOK_NAME_IN_ERRORS, f)
}

/// Wraps an error in one that names the hook, the hook's agent and the method.
pub(super) fn hook_error(hook: &dyn Hook, method: &str, state: &State, error: Error) -> Error {
    let name = catch_hook_panic(|| hook.name().into_owned())
        .unwrap_or_else(|_| "without a name".to_owned());
    let apart = if state.label.is_empty() { "" } else { "/" };
    let message = format!("the hook `{name}{apart}{}` failed in `{method}`: {error}", state.label);
    Error::new(ErrorKind::Hook, message).with_source(error)
}
