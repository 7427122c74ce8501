//! The gate, if there is one, with its panics caught.

use std::any::Any;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, ErrorKind, panic_to_error};
use crate::item::{ToolCall, ToolResult};
use crate::tool::Gate;

/// The gate, if there is one: without it, what it says is the default of its type. A panic in it is an
/// error.
#[derive(Default)]
pub(super) struct GuardedGate(Option<Box<dyn Gate>>);

/// A future of the gate. It is dropped when it is ready.
pub(super) struct OfGate<T>(Option<BoxFuture<'static, T>>);

/// What a call holds while it runs.
pub(super) type Slot = Box<dyn Any + Send>;

impl GuardedGate {
    pub(super) fn new(gate: impl Gate + 'static) -> Self {
        Self(Some(Box::new(gate)))
    }

    /// Whether there is somebody to ask.
    pub(super) fn can_be_asked(&self) -> bool {
        self.0.is_some()
    }

    /// What a method of the gate says.
    pub(super) fn ask<T: Default>(
        &mut self,
        f: impl FnOnce(&mut dyn Gate) -> T,
    ) -> Result<T, Error> {
        self.try_ask(|gate| Ok(f(gate)))
    }

    /// What a method of the gate says that may fail.
    pub(super) fn try_ask<T: Default>(
        &mut self,
        f: impl FnOnce(&mut dyn Gate) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match &mut self.0 {
            Some(gate) => guarded(|| f(&mut **gate)).flatten(),
            None => Ok(T::default()),
        }
    }

    /// Where it fails, the result is as it was.
    pub(super) fn after(&mut self, call: &ToolCall, result: &mut ToolResult) -> Result<(), Error> {
        self.try_ask(|gate| {
            let was = result.clone();
            let looked = guarded(|| gate.after(call, result)).flatten();
            if looked.is_err() {
                *result = was;
            }
            looked
        })
    }
}

impl<T> OfGate<T> {
    pub(super) fn new(future: BoxFuture<'static, T>) -> Self {
        Self(Some(future))
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<Poll<T>, Error> {
        let Some(future) = &mut self.0 else { return Ok(Poll::Pending) };
        let polled = guarded(|| future.poll_unpin(cx))?;
        if polled.is_ready() {
            self.give_up()?;
        }
        Ok(polled)
    }

    /// Drops it.
    pub(super) fn give_up(&mut self) -> Result<(), Error> {
        let future = self.0.take();
        guarded(|| drop(future))
    }
}

impl<T> Drop for OfGate<T> {
    fn drop(&mut self) {
        let _ = self.give_up();
    }
}

fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, Error> {
    panic_to_error(ErrorKind::Hook, "the gate", f)
}
