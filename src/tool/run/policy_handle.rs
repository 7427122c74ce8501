//! A handle to a run's optional policy. The handle catches panics in the policy.

use std::any::Any;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, ErrorKind, panic_to_error};
use crate::item::{ToolCall, ToolResult};
use crate::tool::ToolPolicy;

/// Calls a run's policy, if any. Without a policy, each method of the handle returns the default
/// value of its return type. If the policy panics, the panic becomes an error.
#[derive(Default)]
pub(super) struct PolicyHandle(Option<Box<dyn ToolPolicy>>);

/// A future returned by the policy. The inner future is dropped once it completes.
pub(super) struct PolicyFuture<T>(Option<BoxFuture<'static, T>>);

/// The concurrency slot that a call occupies while it runs.
pub(super) type HeldSlot = Box<dyn Any + Send>;

impl PolicyHandle {
    pub(super) fn new(policy: impl ToolPolicy + 'static) -> Self {
        Self(Some(Box::new(policy)))
    }

    /// Returns whether there is a policy.
    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Calls an infallible method of the policy.
    pub(super) fn call_policy<T: Default>(
        &mut self,
        f: impl FnOnce(&mut dyn ToolPolicy) -> T,
    ) -> Result<T, Error> {
        self.try_call_policy(|policy| Ok(f(policy)))
    }

    /// Calls a fallible method of the policy.
    pub(super) fn try_call_policy<T: Default>(
        &mut self,
        f: impl FnOnce(&mut dyn ToolPolicy) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match &mut self.0 {
            Some(policy) => catch_policy_panic(|| f(&mut **policy)).flatten(),
            None => Ok(T::default()),
        }
    }

    /// Calls the policy's `after_call` method. If `after_call` fails, the result is left unchanged.
    pub(super) fn after_call(
        &mut self,
        call: &ToolCall,
        result: &mut ToolResult,
    ) -> Result<(), Error> {
        self.try_call_policy(|policy| {
            let was = result.clone();
            let looked = catch_policy_panic(|| policy.after_call(call, result)).flatten();
            if looked.is_err() {
                *result = was;
            }
            looked
        })
    }
}

impl<T> PolicyFuture<T> {
    pub(super) fn new(future: BoxFuture<'static, T>) -> Self {
        Self(Some(future))
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<Poll<T>, Error> {
        let Some(future) = &mut self.0 else { return Ok(Poll::Pending) };
        let polled = catch_policy_panic(|| future.poll_unpin(cx))?;
        if polled.is_ready() {
            self.cancel()?;
        }
        Ok(polled)
    }

    /// Drops the future, whether or not it has completed.
    pub(super) fn cancel(&mut self) -> Result<(), Error> {
        let future = self.0.take();
        catch_policy_panic(|| drop(future))
    }
}

impl<T> Drop for PolicyFuture<T> {
    fn drop(&mut self) {
        let _ = self.cancel();
    }
}

fn catch_policy_panic<T>(f: impl FnOnce() -> T) -> Result<T, Error> {
    panic_to_error(ErrorKind::Hook, "the policy", f)
}
