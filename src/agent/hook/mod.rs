//! Hooks: code of your own at the joints of the agent's loop.
//!
//! Everything is a method of one trait, [`Hook`], and every method does nothing unless you write
//! it. Some methods decide, and the run waits for their answers; some observe, and hold up nothing.
//! For a single method a closure is enough: [`before_tool`], [`stop`] and the other functions here
//! make a hook of one, and [`Agent::with_hook`](crate::Agent::with_hook) takes it. [`stamped`] tells
//! the agents apart that share a hook.

mod answer;
mod ask;
mod closures;
mod hooks;
mod narrow;
mod observer;
mod repair;
mod shared;
mod stamped;

use std::borrow::Cow;
use std::future::ready;
use std::sync::Arc;

pub use answer::{BeforeTool, HookFuture, IntoAnswer, OnStop};
pub use closures::{
    after_sampling, after_tool, assistant_message, before_tool, on_failure, on_finished, prepare,
    redact_evidence, redact_progress, should_stop, stop, transform_context, turn_started,
};
pub(in crate::agent) use hooks::{Hooks, Permitted};
pub(in crate::agent) use observer::Observer;
pub use repair::{repair, unwrap_json_string};
pub use stamped::{Stamped, identity, stamped};

use crate::agent::State;
use crate::error::Error;
use crate::event::Outcome;
use crate::item::{History, Item, Json, ToolCall, ToolResult};
use crate::request::Request;
use crate::turn::Turn;

/// Code of your own at the joints of the agent's loop. Every method does nothing unless written.
///
/// Most methods decide: the run waits for their answers. Several hooks are asked one after the
/// other, in the order in which they were added; what that means for their answers is said at each
/// method. One that fails, panics or does not answer
/// [in time](crate::Agent::with_hook_timeout) ends the run.
///
/// Five methods observe, and hold up nothing: [`turn_started`](Self::turn_started),
/// [`assistant_message`](Self::assistant_message), [`after_sampling`](Self::after_sampling),
/// [`failure`](Self::failure) and [`finished`](Self::finished). The first three return a future that
/// owns what it needs. It is polled once when it begins, hook by hook in their order, and then at the
/// beginning of each poll of the run, which does not wait for it. It has the same time limit as an
/// answer. It is dropped without one more poll when the loop of the run ends, before `finished` is
/// called, and when the run is dropped. No task is spawned: work that has to outlive the run belongs in a task of your
/// own. If it fails, panics or takes too long, `failure` is told, and the run goes on.
///
/// In both cases the error is of kind [`Hook`](crate::ErrorKind::Hook), names the hook and the method,
/// and has the hook's own error as its source.
/// The time of an answer is tokio's. An answer that is there at its first poll needs no runtime.
///
/// ```
/// use turnstream::agent::State;
/// use turnstream::agent::hook::{HookFuture, BeforeTool, Hook};
/// use turnstream::item::{History, ToolCall};
///
/// /// Lets nobody leave the folder.
/// struct Fence;
///
/// impl Hook for Fence {
///     fn before_tool<'a>(&'a self, _: &'a State, call: &'a ToolCall) -> HookFuture<'a, BeforeTool> {
///         Box::pin(async move {
///             Ok(match call.arguments.contains("..") {
///                 true => BeforeTool::Deny("stay in the folder".into()),
///                 false => BeforeTool::Run,
///             })
///         })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let call = ToolCall {
///     call_id: "c1".into(),
///     name: "read".into(),
///     arguments: r#"{"path":"../key"}"#.into(),
/// };
/// let state = State::new(History::with_id("h"));
/// let answer = Fence.before_tool(&state, &call).await?;
/// assert_eq!(answer, BeforeTool::Deny("stay in the folder".into()));
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a hook",
    note = "a closure is made one by a function of `turnstream::agent::hook`, such as `hook::before_tool(…)`"
)]
pub trait Hook: Send + Sync {
    /// What errors call it: the name of its type, unless written.
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(std::any::type_name::<Self>())
    }

    /// Changes what is sent, and nothing else: the history stays.
    ///
    /// It is asked before each request. `context` is the history, or what the hook before made of
    /// it. It need not be lawful: encoders [settle](History::settled) it.
    fn transform_context<'a>(
        &'a self,
        state: &'a State,
        context: History,
    ) -> HookFuture<'a, History> {
        let _ = state;
        Box::pin(ready(Ok(context)))
    }

    /// Changes this turn's request: its model, its options, its tools, its system prompt.
    ///
    /// It is asked behind [`transform_context`](Self::transform_context), and sees what the hooks
    /// before it changed. The request's `history` and `context` are put back if it changes them:
    /// the former is the ledger, the latter the business of `transform_context`. A call of a tool
    /// that the request does not offer is answered as one of an unknown tool.
    fn prepare<'a>(&'a self, state: &'a State, request: &'a mut Request) -> HookFuture<'a, ()> {
        let _ = (state, request);
        Box::pin(ready(Ok(())))
    }

    /// Observes that a turn begins: its request is about to be sent.
    fn turn_started(&self, state: &State) -> HookFuture<'static, ()> {
        let _ = state;
        Box::pin(ready(Ok(())))
    }

    /// Observes what the model said: its words, its thoughts, its calls, what they cost.
    fn assistant_message(&self, state: &State, turn: &Arc<Turn>) -> HookFuture<'static, ()> {
        let _ = (state, turn);
        Box::pin(ready(Ok(())))
    }

    /// Observes a complete turn before its calls run, and may add items for a later request. It
    /// cannot change this turn: to hold a call back, there is [`before_tool`](Self::before_tool).
    ///
    /// Items that are there when the next request is built are sent with it, as one `appended` event
    /// with the reason `hook`; those that come later are sent with the request after it, also with the
    /// last one of a run that wraps up. They stand in the order in which the hooks gave them; those of one poll in the
    /// order of the hooks. Items that no request follows are not sent, and are not in the history. They
    /// must be user or system items; any other item is an error, and nothing of that answer is sent.
    fn after_sampling(&self, state: &State, turn: &Arc<Turn>) -> HookFuture<'static, Vec<Item>> {
        let _ = (state, turn);
        Box::pin(ready(Ok(Vec::new())))
    }

    /// Gives other arguments for a call whose own are not JSON, are no object, or do not fit its
    /// tool: the text of a JSON object. `why` says what is wrong with them.
    ///
    /// The first text counts, and no hook behind it is asked. If it fits, the call goes on with it
    /// as if the model had written it: [`before_tool`](Self::before_tool), whoever approves and the
    /// tool see the repaired arguments, and the call does not count as malformed. The history keeps
    /// the model's own, so a [resumed](crate::Agent::resume) call is repaired again. If the text
    /// does not fit either, the model is told `why`, of its own arguments.
    ///
    /// Nothing is repaired unless a hook does; [`unwrap_json_string`] is one. It runs in the poll in
    /// which the call is looked at, so it must be quick.
    fn repair(&self, state: &State, call: &ToolCall, why: &str) -> Option<String> {
        let _ = (state, call, why);
        None
    }

    /// Decides on a call before it runs.
    ///
    /// The first [`Deny`](BeforeTool::Deny) counts, and no hook behind it is asked. Rewrites chain:
    /// each hook sees the call with the arguments so far. After an [`Ask`](BeforeTool::Ask) the
    /// others are still asked, and may still deny. A rewrite to anything but the text of a JSON
    /// object is an error.
    fn before_tool<'a>(
        &'a self,
        state: &'a State,
        call: &'a ToolCall,
    ) -> HookFuture<'a, BeforeTool> {
        let _ = (state, call);
        Box::pin(ready(Ok(BeforeTool::Run)))
    }

    /// Changes the result of a call before anybody sees it.
    ///
    /// It runs in the poll in which the result arrives, so it must be quick; for anything slow,
    /// wrap the tool. The result answers its call whatever happens: a changed id or name is put
    /// back. If it panics it has changed nothing, and the hooks behind it still get the result.
    fn after_tool(&self, call: &ToolCall, result: &mut ToolResult) {
        let _ = (call, result);
    }

    /// Changes what a running call reports as progress, before anybody sees it: takes secrets out, for
    /// example. A panic ends the run, and `null` is reported.
    ///
    /// It runs in the poll in which the progress arrives, so it must be quick. What a sub-agent
    /// reports is the business of its own hooks.
    fn redact_progress(&self, call: &ToolCall, data: &mut Json) {
        let _ = (call, data);
    }

    /// Changes a piece of evidence that a call has put on record, before
    /// [`after_tool`](Self::after_tool) and before anybody sees it, also that of a call that is
    /// dropped. A panic ends the run, and `null` is kept.
    ///
    /// The calls of a sub-agent are the business of its own hooks: its events are handed on as they
    /// are.
    fn redact_evidence(&self, call: &ToolCall, evidence: &mut Json) {
        let _ = (call, evidence);
    }

    /// Whether the run stops here, at a boundary where the model wants more.
    ///
    /// It is asked behind each complete turn that is followed by another one: its tools have run, it
    /// was cut off or paused, or its reply is empty or has calls that cannot run. It is not asked
    /// where a turn failed, or where a budget has refused the calls. A model that has stopped by
    /// itself is [`stop`](Self::stop)'s business.
    ///
    /// The first `true` counts, and no hook behind it is asked.
    fn should_stop<'a>(&'a self, state: &'a State) -> HookFuture<'a, bool> {
        let _ = state;
        Box::pin(ready(Ok(false)))
    }

    /// Decides whether a model that is done may stop. It is not asked when a request failed.
    ///
    /// All hooks are asked. If any [blocks](OnStop::Block), the model reads what all of those say;
    /// else the first that ends the run in another way than as completed counts.
    fn stop<'a>(&'a self, state: &'a State, turn: &'a Turn) -> HookFuture<'a, OnStop> {
        let _ = (state, turn);
        Box::pin(ready(Ok(OnStop::LetGo)))
    }

    /// Observes what went wrong: a request that failed, also if it is sent again, a compaction that
    /// failed, a hook that observes and failed, and the error that ends the run. Each is told once.
    ///
    /// It runs in the poll in which the error comes, so it must be quick. If it panics, nothing is
    /// told of that.
    fn failure(&self, state: &State, error: &Error) {
        let _ = (state, error);
    }

    /// Observes how the run ended. It is called once, and nothing is told after it but that it
    /// panicked.
    ///
    /// It runs in the poll that gives `finished`, so it must be quick: the run is over, and polls
    /// nothing any more.
    fn finished(&self, outcome: &Outcome) {
        let _ = outcome;
    }
}

#[cfg(test)]
mod tests;
