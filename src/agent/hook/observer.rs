//! Runs the future returned by an observing hook, polling it together with the run.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::agent::State;
use crate::agent::hook::invoke::{HOOK_NAME_IN_ERRORS, hook_error};
use crate::agent::hook::{Hook, HookFuture};
use crate::agent::timed_call::TimedCall;
use crate::env::TimeLimit;
use crate::error::{Error, ErrorKind};
use crate::item::{Item, ItemKind};

/// A running call to an observing hook. The call owns all of its data.
///
/// Dropping an observer drops the hook's future.
pub(in crate::agent) struct Observer {
    hook: Arc<dyn Hook>,
    method: &'static str,
    state: Arc<State>,
    future: ObserverFuture,
}

/// The future that an observer polls.
pub(super) enum ObserverFuture {
    Unit(TimedCall<'static, Result<(), Error>>),
    Notes(TimedCall<'static, Result<Vec<Item>, Error>>),
    /// The hook's method panicked before it returned a future.
    Panicked(Error),
}

impl From<TimedCall<'static, Result<(), Error>>> for ObserverFuture {
    fn from(end: TimedCall<'static, Result<(), Error>>) -> Self {
        Self::Unit(end)
    }
}

impl From<TimedCall<'static, Result<Vec<Item>, Error>>> for ObserverFuture {
    fn from(notes: TimedCall<'static, Result<Vec<Item>, Error>>) -> Self {
        Self::Notes(notes)
    }
}

impl Observer {
    /// Calls an observing method of a hook, and returns an observer for the resulting future.
    pub(super) fn start<T>(
        hook: &Arc<dyn Hook>,
        method: &'static str,
        limit: TimeLimit,
        state: &Arc<State>,
        call: impl FnOnce(&dyn Hook) -> HookFuture<'static, T>,
    ) -> Self
    where
        ObserverFuture: From<TimedCall<'static, Result<T, Error>>>,
    {
        let answer = TimedCall::new(HOOK_NAME_IN_ERRORS, limit, || call(&**hook));
        let answer = answer.map_or_else(ObserverFuture::Panicked, ObserverFuture::from);
        Self { hook: Arc::clone(hook), method, state: Arc::clone(state), future: answer }
    }

    /// Returns the state that the hook received.
    pub(in crate::agent) fn state(&self) -> &State {
        &self.state
    }

    /// Polls the hook's future. Once the future completes, returns the resulting items or error. A
    /// completed observer must not be polled again.
    pub(in crate::agent) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Vec<Item>, Error>> {
        let given = match &mut self.future {
            ObserverFuture::Unit(end) => {
                end.poll(HOOK_NAME_IN_ERRORS, cx).map(|given| given.flatten().map(|()| Vec::new()))
            }
            ObserverFuture::Notes(notes) => {
                notes.poll(HOOK_NAME_IN_ERRORS, cx).map(|given| check_notes(given.flatten()?))
            }
            ObserverFuture::Panicked(error) => Poll::Ready(Err(error.clone())),
        };
        given.map_err(|error| hook_error(&*self.hook, self.method, &self.state, error))
    }

    /// Drops the hook's future, and returns an error if the drop panics.
    pub(in crate::agent) fn cancel(&mut self) -> Result<(), Error> {
        let dropped = match &mut self.future {
            ObserverFuture::Unit(end) => end.cancel(HOOK_NAME_IN_ERRORS),
            ObserverFuture::Notes(notes) => notes.cancel(HOOK_NAME_IN_ERRORS),
            ObserverFuture::Panicked(_) => Ok(()),
        };
        dropped.map_err(|error| hook_error(&*self.hook, self.method, &self.state, error))
    }
}

/// Returns the hook's items unchanged if all of them are user or system items. Otherwise, returns
/// an error.
fn check_notes(items: Vec<Item>) -> Result<Vec<Item>, Error> {
    if !items.iter().all(is_input_item) {
        let what = "it may add only user and system items";
        return Err(Error::new(ErrorKind::Other, what));
    }
    // An item's `turn` field describes the turn that the item belongs to, but items from hooks do
    // not belong to a turn.
    Ok(items.into_iter().map(|item| Item { turn: None, ..item }).collect())
}

fn is_input_item(item: &Item) -> bool {
    match item.kind {
        ItemKind::User { .. } | ItemKind::System { .. } => true,
        ItemKind::Text { .. }
        | ItemKind::Reasoning { .. }
        | ItemKind::ToolCall(_)
        | ItemKind::ToolResult(_)
        | ItemKind::Other => false,
    }
}
