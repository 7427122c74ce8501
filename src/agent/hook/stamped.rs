//! Tells the agents apart that share a hook.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use crate::agent::State;
use crate::agent::hook::{BeforeTool, Hook, HookFuture, OnStop};
use crate::error::Error;
use crate::event::Outcome;
use crate::item::{History, Item, Json, ToolCall, ToolResult};
use crate::request::Request;
use crate::turn::Turn;

thread_local! {
    /// Set only while a stamped hook runs, in one call or one poll.
    static IDENTITY: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Wraps a hook for one of the agents that share it: while the hook runs, [`identity`] says whose
/// hook it is. Neither the loop nor the hook's type knows of it.
///
/// Stamps of a tree of agents add up: what `researcher` was given and stamps again for its own
/// `reader` is `researcher/reader`. The identity also follows the hook's name in errors.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use turnstream::agent::State;
/// use turnstream::agent::hook::{self, BeforeTool, Hook};
/// use turnstream::item::{History, ToolCall};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let lines = Arc::new(Mutex::new(Vec::new()));
/// let log = {
///     let lines = Arc::clone(&lines);
///     Arc::new(hook::before_tool(move |_state, call| {
///         let who = hook::identity().unwrap_or_else(|| "lead".into());
///         lines.lock().unwrap().push(format!("{who} calls {}", call.name));
///         async { BeforeTool::Run }
///     }))
/// };
/// let researcher = Arc::new(hook::stamped("researcher", Arc::clone(&log)));
/// let reader = hook::stamped("reader", Arc::clone(&researcher));
///
/// # let state = State::new(History::with_id("h"));
/// # let call = |name: &str| ToolCall {
/// #     call_id: "c".into(),
/// #     name: name.into(),
/// #     arguments: "{}".into(),
/// # };
/// // What the loops of three agents do:
/// log.before_tool(&state, &call("delegate")).await?;
/// researcher.before_tool(&state, &call("search")).await?;
/// reader.before_tool(&state, &call("read")).await?;
/// assert_eq!(
///     *lines.lock().unwrap(),
///     ["lead calls delegate", "researcher calls search", "researcher/reader calls read"],
/// );
/// # Ok(())
/// # }
/// ```
pub fn stamped<H: Hook>(identity: impl Into<Arc<str>>, hook: H) -> Stamped<H> {
    Stamped { identity: identity.into(), hook }
}

/// Whose hook runs: the identity that [`stamped`] gave, `None` outside of a stamped hook.
///
/// It is known inside the methods of the hook and the futures they give, wherever these are polled,
/// and unknown in a task or thread that a hook starts by itself.
pub fn identity() -> Option<Arc<str>> {
    IDENTITY.with_borrow(Clone::clone)
}

/// Hook for the [`stamped`] function.
#[derive(Clone)]
pub struct Stamped<H> {
    identity: Arc<str>,
    hook: H,
}

impl<H: Hook> Stamped<H> {
    /// Runs code of the hook under its identity. An outer stamp is a deeper agent's.
    fn within<T>(&self, f: impl FnOnce() -> T) -> T {
        within(&self.identity, f)
    }

    fn asked<'a, T: Send + 'a>(
        &'a self,
        question: impl FnOnce(&'a H) -> HookFuture<'a, T>,
    ) -> HookFuture<'a, T> {
        let mut answer = self.within(|| question(&self.hook));
        Box::pin(poll_fn(move |cx| self.within(|| answer.as_mut().poll(cx))))
    }

    fn observing<T: Send + 'static>(
        &self,
        begin: impl FnOnce(&H) -> HookFuture<'static, T>,
    ) -> HookFuture<'static, T> {
        let mut answer = self.within(|| begin(&self.hook));
        let identity = Arc::clone(&self.identity);
        Box::pin(poll_fn(move |cx| within(&identity, || answer.as_mut().poll(cx))))
    }
}

/// Runs code under an identity, which stands above the one that it runs under already.
fn within<T>(own: &Arc<str>, f: impl FnOnce() -> T) -> T {
    let before = identity();
    let path = match &before {
        Some(deeper) => format!("{own}/{deeper}").into(),
        None => Arc::clone(own),
    };
    IDENTITY.set(Some(path));
    let _restore = Restore(before);
    f()
}

/// Puts back whose hook ran before, also behind a panic.
struct Restore(Option<Arc<str>>);

impl Drop for Restore {
    fn drop(&mut self) {
        IDENTITY.set(self.0.take());
    }
}

impl<H: Hook> Hook for Stamped<H> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Owned(format!("{}/{}", self.hook.name(), self.identity))
    }

    fn transform_context<'a>(
        &'a self,
        state: &'a State,
        context: History,
    ) -> HookFuture<'a, History> {
        self.asked(|hook| hook.transform_context(state, context))
    }

    fn prepare<'a>(&'a self, state: &'a State, request: &'a mut Request) -> HookFuture<'a, ()> {
        self.asked(|hook| hook.prepare(state, request))
    }

    fn turn_started(&self, state: &State) -> HookFuture<'static, ()> {
        self.observing(|hook| hook.turn_started(state))
    }

    fn assistant_message(&self, state: &State, turn: &Arc<Turn>) -> HookFuture<'static, ()> {
        self.observing(|hook| hook.assistant_message(state, turn))
    }

    fn after_sampling(&self, state: &State, turn: &Arc<Turn>) -> HookFuture<'static, Vec<Item>> {
        self.observing(|hook| hook.after_sampling(state, turn))
    }

    fn repair(&self, state: &State, call: &ToolCall, why: &str) -> Option<String> {
        self.within(|| self.hook.repair(state, call, why))
    }

    fn before_tool<'a>(
        &'a self,
        state: &'a State,
        call: &'a ToolCall,
    ) -> HookFuture<'a, BeforeTool> {
        self.asked(|hook| hook.before_tool(state, call))
    }

    fn after_tool(&self, call: &ToolCall, result: &mut ToolResult) {
        self.within(|| self.hook.after_tool(call, result));
    }

    fn redact_progress(&self, call: &ToolCall, data: &mut Json) {
        self.within(|| self.hook.redact_progress(call, data));
    }

    fn redact_evidence(&self, call: &ToolCall, evidence: &mut Json) {
        self.within(|| self.hook.redact_evidence(call, evidence));
    }

    fn should_stop<'a>(&'a self, state: &'a State) -> HookFuture<'a, bool> {
        self.asked(|hook| hook.should_stop(state))
    }

    fn stop<'a>(&'a self, state: &'a State, turn: &'a Turn) -> HookFuture<'a, OnStop> {
        self.asked(|hook| hook.stop(state, turn))
    }

    fn failure(&self, state: &State, error: &Error) {
        self.within(|| self.hook.failure(state, error));
    }

    fn finished(&self, outcome: &Outcome) {
        self.within(|| self.hook.finished(outcome));
    }
}

impl<H> fmt::Debug for Stamped<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stamped").field("identity", &self.identity).finish_non_exhaustive()
    }
}
