//! What stands between the calls of a turn and their tools.

use std::any::Any;
use std::future::ready;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::Error;
use crate::item::{RawJson, ToolCall, ToolResult};
use crate::tool::{IntoToolOutput, ToolContext, ToolOutput};

/// What stands between the calls of a turn and their tools: rules, approvals, and whoever looks at
/// the results.
///
/// Every method has a default, which together let every call run that needs nobody's approval.
/// A panic in one ends the run with an error of kind [`Hook`](crate::ErrorKind::Hook), as an error
/// that one gives does: see [`ToolRun::with_policy`](crate::tool::ToolRun::with_policy).
///
/// ```
/// use futures::future::BoxFuture;
/// use futures::{FutureExt, future::ready};
/// use turnstream::Error;
/// use turnstream::item::ToolCall;
/// use turnstream::tool::{ToolPolicy, Permission};
///
/// struct ReadOnly;
///
/// impl ToolPolicy for ReadOnly {
///     fn before_call(&mut self, call: &ToolCall) -> BoxFuture<'static, Result<Permission, Error>> {
///         let permit = match call.name.starts_with("read_") {
///             true => Permission::allow(),
///             false => Permission::deny("only reading is allowed"),
///         };
///         ready(Ok(permit)).boxed()
///     }
/// }
/// ```
pub trait ToolPolicy: Send {
    /// Other arguments for a call whose own are not JSON, are no object, or do not fit its tool, as
    /// JSON text; `why` says what is wrong with them. `None`, the default, repairs nothing.
    ///
    /// What it gives is checked once. If it fits, the call goes on with it as if the model had
    /// written it: [`before_call`](Self::before_call), whoever approves and the tool see the repaired
    /// arguments. The history keeps the model's own, so a resumed call is repaired again. If it does
    /// not fit either, the model is told `why`, of its own arguments.
    ///
    /// It runs in the poll in which the call is looked at.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use futures::future::ready;
    /// use serde_json::json;
    /// use turnstream::item::ToolCall;
    /// use turnstream::provider::{Provider, Reply, Scripted};
    /// use turnstream::stream::TurnStreamExt;
    /// use turnstream::tool::{ToolPolicy, Tool, ToolSpec};
    /// use turnstream::{Error, History, Request, Toolkit};
    ///
    /// /// Takes one comma away that is too many.
    /// struct Commas;
    ///
    /// impl ToolPolicy for Commas {
    ///     fn repair_arguments(&mut self, call: &ToolCall, _why: &str) -> Result<Option<String>, Error> {
    ///         let rest = call.arguments.trim_end().strip_suffix(",}");
    ///         Ok(rest.map(|rest| format!("{rest}}}")))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let spec = ToolSpec::new(
    ///     "add",
    ///     "Adds one",
    ///     json!({ "type": "object", "required": ["n"] }),
    /// );
    /// let add = Tool::raw(spec, |args, _cx| ready(args["n"].as_i64().unwrap_or(0) + 1))?;
    /// let model = Scripted::new([Reply::new().call_raw("c1", "add", r#"{"n":1,}"#)]);
    /// let history = History::from_id("h");
    /// let turn = model.stream_turn(Request::new(history.clone())).into_turn().await?;
    ///
    /// let mut tools = Toolkit::new([add]).run(&history, &turn).with_policy(Commas);
    /// while tools.next().await.is_some() {}
    /// let answered = tools.finish()?;
    /// assert_eq!(answered.results[0].content.text(), "2");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The run ends with it.
    fn repair_arguments(&mut self, call: &ToolCall, why: &str) -> Result<Option<String>, Error> {
        let _ = (call, why);
        Ok(None)
    }

    /// Asked once about each call that could run: it is complete, its tool is known, and its
    /// arguments fit, by themselves or [repaired](Self::repair_arguments).
    ///
    /// Calls are asked about in their order, one after the other, and when there is room for the
    /// call to start; one that waits for somebody in any case is asked about as soon as it is its
    /// turn. Calls that run go on meanwhile.
    fn before_call(&mut self, call: &ToolCall) -> BoxFuture<'static, Result<Permission, Error>> {
        let _ = call;
        ready(Ok(Permission::allow())).boxed()
    }

    /// A call waits for a verdict: for an approval, or for the result of an
    /// [external](crate::Tool::external) one. `call` has the arguments that would run.
    ///
    /// Where an approval is needed,
    /// [`ApprovalRequested`](crate::event::ToolEvent::ApprovalRequested) is given out next.
    fn on_verdict_requested(&mut self, call: &ToolCall) {
        let _ = call;
    }

    /// The verdict on a call that waits, if there is one. Looked at before it would be asked for,
    /// and in every poll from then on.
    ///
    /// Whoever comes to a verdict between two polls wakes the task.
    fn verdict(&mut self, call: &ToolCall) -> Option<Verdict> {
        let _ = call;
        None
    }

    /// Whether calls that need an approval are waited for (interactive) or left pending when their
    /// siblings have ended (the default); asked when nothing runs any more. External calls are
    /// always left pending.
    fn waits_for_verdicts(&self) -> bool {
        false
    }

    /// Waits for a place among the calls and requests of other runs, before a call starts; `None`,
    /// the default, lets it start at once. What the future gives is dropped when the call ends.
    ///
    /// While it is pending, the call waits, and those after it. It is dropped when another call is
    /// to start first, or when there is no room for the call among those of its own turn; then this
    /// is called again later. Asked only for tools that do not
    /// [run agents](crate::Tool::runs_sub_agents).
    fn acquire_slot(&mut self, call: &ToolCall) -> Option<BoxFuture<'static, Box<dyn Any + Send>>> {
        let _ = call;
        None
    }

    /// A call starts with this context. Where it ends without a result, because everything that runs
    /// is dropped, its [report](ToolContext::effect_report) tells what it had put on record.
    fn on_start(&mut self, context: &ToolContext) {
        let _ = context;
    }

    /// Looks at, and may rewrite, each result before anybody sees it, also that of a call that did
    /// not run; its kind tells. It runs in the poll in which the result arrives.
    ///
    /// # Errors
    ///
    /// The result is given out as it was, then the run ends.
    fn after_call(&mut self, call: &ToolCall, result: &mut ToolResult) -> Result<(), Error> {
        let _ = (call, result);
        Ok(())
    }

    /// Changes what a running call reports as progress, before anybody sees it.
    ///
    /// # Errors
    ///
    /// The run ends with it, and `null` is reported.
    fn redact_progress(&mut self, call: &ToolCall, data: &mut RawJson) -> Result<(), Error> {
        let _ = (call, data);
        Ok(())
    }

    /// Changes each piece of evidence that a call has put on record, before [`after_call`](Self::after_call)
    /// and before anybody sees it.
    ///
    /// # Errors
    ///
    /// The run ends with it, and `null` is kept.
    fn redact_evidence(&mut self, call: &ToolCall, evidence: &mut RawJson) -> Result<(), Error> {
        let _ = (call, evidence);
        Ok(())
    }

    /// What tools of this crate are handed through their context.
    fn policy_extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

/// What a gate says before a call starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Whether it runs.
    pub decision: PermissionDecision,
    /// Runs with these instead of the model's. They are checked like the model's; if they do not
    /// fit, the call is answered with an error.
    pub arguments: Option<String>,
}

/// Whether a call runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionDecision {
    /// It runs, unless its tool needs an approval.
    Allow,
    /// Somebody has to approve it.
    RequireApproval,
    /// It does not run, and the model is told why.
    Deny(String),
}

/// What somebody says to a call that waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It runs. An external call stays pending: only its output answers it.
    Approve,
    /// It does not run, and the model is told why.
    Deny(String),
    /// It does not run: this is its result.
    Output(ToolOutput),
}

impl Permission {
    /// It runs.
    pub fn allow() -> Self {
        Self { decision: PermissionDecision::Allow, arguments: None }
    }

    /// Somebody has to approve it.
    pub fn require_approval() -> Self {
        Self { decision: PermissionDecision::RequireApproval, arguments: None }
    }

    /// It does not run. The reason is for the model.
    pub fn deny(why: impl Into<String>) -> Self {
        Self { decision: PermissionDecision::Deny(why.into()), arguments: None }
    }

    /// The same with other arguments, as JSON text.
    pub fn with_arguments(mut self, arguments: impl Into<String>) -> Self {
        self.arguments = Some(arguments.into());
        self
    }
}

impl Verdict {
    /// It does not run. The reason is for the model.
    pub fn deny(why: impl Into<String>) -> Self {
        Self::Deny(why.into())
    }

    /// It does not run: this is its result.
    pub fn output(output: impl IntoToolOutput) -> Self {
        Self::Output(output.into_tool_output())
    }
}
