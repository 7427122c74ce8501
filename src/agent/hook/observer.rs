//! A hook that observes: what one of its methods has begun, to be polled with the run.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::agent::State;
use crate::agent::hook::ask::{IT, failed};
use crate::agent::hook::{Hook, HookFuture};
use crate::agent::within::Within;
use crate::env::TimeLimit;
use crate::error::{Error, ErrorKind};
use crate::item::{Item, ItemKind};

/// What an observing method has begun. It owns all that it needs.
///
/// Dropping it drops the hook's future.
pub(in crate::agent) struct Observer {
    hook: Arc<dyn Hook>,
    method: &'static str,
    state: Arc<State>,
    answer: Answer,
}

/// What is awaited of it.
pub(super) enum Answer {
    End(Within<'static, Result<(), Error>>),
    Notes(Within<'static, Result<Vec<Item>, Error>>),
    /// It panicked before it gave a future.
    Panicked(Error),
}

impl From<Within<'static, Result<(), Error>>> for Answer {
    fn from(end: Within<'static, Result<(), Error>>) -> Self {
        Self::End(end)
    }
}

impl From<Within<'static, Result<Vec<Item>, Error>>> for Answer {
    fn from(notes: Within<'static, Result<Vec<Item>, Error>>) -> Self {
        Self::Notes(notes)
    }
}

impl Observer {
    /// Calls an observing method.
    pub(super) fn begin<T>(
        hook: &Arc<dyn Hook>,
        method: &'static str,
        limit: TimeLimit,
        state: &Arc<State>,
        call: impl FnOnce(&dyn Hook) -> HookFuture<'static, T>,
    ) -> Self
    where
        Answer: From<Within<'static, Result<T, Error>>>,
    {
        let answer = Within::new(IT, limit, || call(&**hook));
        let answer = answer.map_or_else(Answer::Panicked, Answer::from);
        Self { hook: Arc::clone(hook), method, state: Arc::clone(state), answer }
    }

    /// The state of which the hook was told.
    pub(in crate::agent) fn state(&self) -> &State {
        &self.state
    }

    /// Ready when it is over: what it wants said, or why it failed. It must not be polled again
    /// after that.
    pub(in crate::agent) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Vec<Item>, Error>> {
        let given = match &mut self.answer {
            Answer::End(end) => end.poll(IT, cx).map(|given| given.flatten().map(|()| Vec::new())),
            Answer::Notes(notes) => notes.poll(IT, cx).map(|given| checked(given.flatten()?)),
            Answer::Panicked(error) => Poll::Ready(Err(error.clone())),
        };
        given.map_err(|error| failed(&*self.hook, self.method, &self.state, error))
    }

    /// Drops the hook's future, which is an error if it panics.
    pub(in crate::agent) fn cancel(&mut self) -> Result<(), Error> {
        let dropped = match &mut self.answer {
            Answer::End(end) => end.cancel(IT),
            Answer::Notes(notes) => notes.cancel(IT),
            Answer::Panicked(_) => Ok(()),
        };
        dropped.map_err(|error| failed(&*self.hook, self.method, &self.state, error))
    }
}

/// Words from outside; anything else is an error.
fn checked(items: Vec<Item>) -> Result<Vec<Item>, Error> {
    if !items.iter().all(is_words_from_outside) {
        let what = "it may add only user and system items";
        return Err(Error::new(ErrorKind::Other, what));
    }
    // What is known of a turn belongs to the turn's own items.
    Ok(items.into_iter().map(|item| Item { turn: None, ..item }).collect())
}

fn is_words_from_outside(item: &Item) -> bool {
    match item.kind {
        ItemKind::User { .. } | ItemKind::System { .. } => true,
        ItemKind::Text { .. }
        | ItemKind::Reasoning { .. }
        | ItemKind::ToolCall(_)
        | ItemKind::ToolResult(_)
        | ItemKind::Other => false,
    }
}
