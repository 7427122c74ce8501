//! Rules, approvals and redaction for the calls in a turn.

use std::any::Any;
use std::future::ready;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::env::{Ids, SystemIds};
use crate::error::Error;
use crate::item::model_json::is_reading_of;
use crate::item::{
    Grant, GrantDuration, GrantScope, GrantTerms, PendingCall, RawJson, ToolCall, ToolResult,
};
use crate::tool::{IntoToolOutput, ToolContext, ToolOutput};

/// A policy that decides which of a turn's calls run, handles approvals, and can inspect and change
/// results.
///
/// Every method has a default implementation. If no methods are overridden, every call that does
/// not require an approval runs. An error or panic in any method ends the run. A panic becomes an
/// error of kind [`Hook`](crate::ErrorKind::Hook). See
/// [`ToolRun::with_policy`](crate::tool::ToolRun::with_policy).
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
    /// Returns replacement arguments, as JSON text, for a call whose arguments are not valid JSON,
    /// are not an object, or are invalid for the tool. `why` states why the arguments are invalid.
    /// If this method returns `None` (the default), the arguments are not repaired.
    ///
    /// The replacement is checked like the original arguments, but is never replaced itself. If the
    /// replacement is valid, the call continues as if the model had written the replacement:
    /// [`before_call`](Self::before_call), the approver and the tool see the repaired arguments.
    /// The history keeps the model's arguments, so the arguments of a resumed call are repaired
    /// again. If the replacement is also invalid, the model receives `why`, which describes the
    /// error in the arguments that the model wrote.
    ///
    /// `repair_arguments` runs synchronously during the poll that checks the call.
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
    /// /// Removes a trailing comma before the closing brace.
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
    /// let schema = json!({
    ///     "type": "object",
    ///     "properties": { "n": { "type": "integer" } },
    ///     "required": ["n"],
    /// });
    /// let spec = ToolSpec::new("add", "Adds one", schema);
    /// let add = Tool::raw(spec, |args, _cx| ready(args["n"].as_i64().unwrap_or(0) + 1))?;
    /// let model = Scripted::new([Reply::new().call_raw("c1", "add", r#"{"n":1,}"#)]);
    /// let history = History::empty("h");
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
    /// Returning an error ends the run.
    fn repair_arguments(&mut self, call: &ToolCall, why: &str) -> Result<Option<String>, Error> {
        let _ = (call, why);
        Ok(None)
    }

    /// Decides whether a call runs. `before_call` is called once for each complete call whose tool
    /// is known and whose arguments are valid or have been [repaired](Self::repair_arguments). The
    /// arguments are those that the tool receives, for example with `5` for an integer that the
    /// model wrote as `5.0`.
    ///
    /// Decisions are requested one at a time, in call order. A decision is not requested until the
    /// concurrency limit allows the call to start. However, if the call's tool requires an approval
    /// or an external result, the decision is requested as soon as all earlier decisions have been
    /// made. Running calls continue while a decision is pending.
    ///
    /// The future is dropped if the run is interrupted or dropped before it completes. The call
    /// then does not run.
    ///
    /// # Errors
    ///
    /// Returning an error ends the run.
    fn before_call(&mut self, call: &ToolCall) -> BoxFuture<'static, Result<Permission, Error>> {
        let _ = call;
        ready(Ok(Permission::allow())).boxed()
    }

    /// Notifies the policy that arguments that it returned for a call are invalid for the call's
    /// tool, and why. They are from [`repair_arguments`](Self::repair_arguments) or from a
    /// [`Permission`]. The call does not run. For the arguments of a permission, the result says
    /// that the model did not write them.
    fn on_invalid_rewrite(&mut self, call: &ToolCall, why: &str) {
        let _ = (call, why);
    }

    /// Generates the id of a request for a verdict. No two requests may have the same id. By
    /// default, the ids come from [`SystemIds`](crate::env::SystemIds).
    fn next_approval_id(&mut self) -> String {
        SystemIds.next_id()
    }

    /// Notifies the policy that a call is now waiting for a verdict, which is either an approval or
    /// the result of an [external](crate::Tool::external) tool. `call` contains the arguments that
    /// the tool receives if the call runs, and the id of this request. A verdict on a request with
    /// another id does not hold for the call.
    ///
    /// If the call needs an approval,
    /// [`ApprovalRequested`](crate::event::ToolEvent::ApprovalRequested) is the next event emitted.
    fn on_verdict_requested(&mut self, call: &PendingCall) {
        let _ = call;
    }

    /// Returns the verdict on a waiting call, or `None` if there is no verdict yet. This method is
    /// called once before the verdict is requested, with a new approval id, and then in every later
    /// poll.
    ///
    /// If a verdict arrives between two polls, the implementation must wake the task that polls the
    /// run.
    fn verdict(&mut self, call: &PendingCall) -> Option<Verdict> {
        let _ = call;
        None
    }

    /// Returns the id of a [grant](Grant) that allows the call, if there is one. This method is
    /// called for a call that needs an approval, after [`before_call`](Self::before_call) has not
    /// denied it and before the approval is requested. It is called again immediately before such a
    /// call starts: if there is no grant anymore, an approval is requested. It is also called for a
    /// waiting call after another call of the turn was approved with a new grant.
    ///
    /// If this method returns `None` (the default), the call needs an approval.
    fn find_grant(&mut self, call: &PendingCall) -> Option<String> {
        let _ = call;
        None
    }

    /// Creates the grant for a call that was approved with [`Verdict::ApproveAlways`]. The
    /// [`GrantAdded`](crate::event::ToolEvent::GrantAdded) event with this grant is emitted before
    /// the call starts. If this method returns `None` (the default), the approval holds only for
    /// this call.
    fn create_grant(&mut self, call: &PendingCall, terms: &GrantTerms) -> Option<Grant> {
        let _ = (call, terms);
        None
    }

    /// Removes and returns the id of a grant that was revoked and whose revocation has not been
    /// reported. The [`GrantRevoked`](crate::event::ToolEvent::GrantRevoked) event is then emitted.
    /// This method is called in every poll of the run.
    fn take_revoked_grant(&mut self) -> Option<String> {
        None
    }

    /// Returns whether the run waits for approvals, for example in an interactive program. If this
    /// method returns `false` (the default), calls that need an approval are left pending once all
    /// other calls have ended. The method is called when no calls are running. External calls are
    /// always left pending.
    fn waits_for_verdicts(&self) -> bool {
        false
    }

    /// Returns a future that waits for one of the concurrency slots shared by several runs. The
    /// call starts once the future completes. If this method returns `None` (the default), the call
    /// starts immediately. The output of the future is dropped when the call ends.
    ///
    /// While the returned future is pending, the call and all later calls wait. The future is
    /// dropped if another call must start first, or if the turn's own concurrency limit leaves no
    /// slot for the call. If the future is dropped for one of these reasons, `acquire_slot` is
    /// called again later. `acquire_slot` is called only for tools that do not [run
    /// agents](crate::Tool::running_sub_agents).
    fn acquire_slot(&mut self, call: &ToolCall) -> Option<BoxFuture<'static, Box<dyn Any + Send>>> {
        let _ = call;
        None
    }

    /// Notifies the policy that a call is starting. If the call is later dropped without a result,
    /// for example because the run is dropped, the [report](ToolContext::effect_report) in
    /// `context` contains the effects that were recorded before the call was dropped.
    fn on_start(&mut self, context: &ToolContext) {
        let _ = context;
    }

    /// Inspects, and possibly changes, each result before the run's consumer sees it. The method
    /// also receives the results of calls that did not run; the kind of such a result shows why the
    /// call did not run. `after_call` runs synchronously during the poll in which the result
    /// arrives.
    ///
    /// # Errors
    ///
    /// Returning an error ends the run after the result has been emitted unchanged.
    fn after_call(&mut self, call: &ToolCall, result: &mut ToolResult) -> Result<(), Error> {
        let _ = (call, result);
        Ok(())
    }

    /// Redacts or otherwise changes a progress report from a running call before it is emitted.
    ///
    /// # Errors
    ///
    /// Returning an error ends the run, and `null` is emitted instead of the report.
    fn redact_progress(&mut self, call: &ToolCall, data: &mut RawJson) -> Result<(), Error> {
        let _ = (call, data);
        Ok(())
    }

    /// Redacts or otherwise changes a piece of evidence that a call has recorded. This method is
    /// called for each piece of evidence, before [`after_call`](Self::after_call) is called and
    /// before the run's consumer sees the evidence.
    ///
    /// # Errors
    ///
    /// Returning an error ends the run, and `null` replaces the evidence.
    fn redact_evidence(&mut self, call: &ToolCall, evidence: &mut RawJson) -> Result<(), Error> {
        let _ = (call, evidence);
        Ok(())
    }

    /// Returns a value that this crate's own tools can read from their [`ToolContext`]. Policies
    /// outside this crate do not need to override this method.
    fn policy_extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

/// A policy's decision about a valid call: whether the call runs, and with which arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Whether the call runs.
    pub decision: PermissionDecision,
    /// Arguments that replace the model's arguments, as JSON text. The replacement is checked in
    /// the same way as the model's arguments. If the replacement is invalid, the call receives an
    /// error result. The constructors set `None`.
    pub arguments: Option<String>,
}

/// Specifies whether a call runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionDecision {
    /// The call runs, unless its tool requires an approval.
    Allow,
    /// The call requires an approval before it runs.
    RequireApproval,
    /// The call does not run, and the model receives this text as the reason.
    Deny(String),
}

/// The verdict on a call that is waiting for an approval or an external result.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The call runs, unless it is an external call. An external call stays pending, since only an
    /// `Output` or a `Deny` can answer it.
    Approve,
    /// The call runs as with [`Approve`](Self::Approve), and further calls to its tool are allowed
    /// on these terms: the run creates a [grant](Grant).
    ApproveAlways(GrantTerms),
    /// The call does not run, and the model receives this text as the reason.
    Deny(String),
    /// The call does not run, and this output is its result.
    Output(ToolOutput),
}

impl Permission {
    /// Allows the call to run, unless its tool requires an approval.
    pub fn allow() -> Self {
        Self { decision: PermissionDecision::Allow, arguments: None }
    }

    /// Requires an approval before the call runs, even if its tool does not require one.
    pub fn require_approval() -> Self {
        Self { decision: PermissionDecision::RequireApproval, arguments: None }
    }

    /// Denies the call. The model receives `why` as the reason.
    pub fn deny(why: impl Into<String>) -> Self {
        Self { decision: PermissionDecision::Deny(why.into()), arguments: None }
    }
}

impl Verdict {
    /// Returns whether this verdict, which was given on the call `given`, answers `request`. An
    /// approval must name the request. A verdict with which nothing runs may also name only the
    /// call, since a call is answered once.
    pub(crate) fn answers(&self, request: &PendingCall, given: &PendingCall) -> bool {
        // The call may have been taken from a history, which has the arguments that the model
        // wrote.
        let has_same_arguments = || {
            request.has_same_arguments(given)
                || request.name == given.name && is_reading_of(&request.arguments, &given.arguments)
        };
        let names_call =
            || !self.is_approval() && request.is_same_call(given) && has_same_arguments();
        request == given || given.approval_id.is_empty() && names_call()
    }

    /// Creates a verdict that approves the call and allows further calls to its tool. The grant
    /// does not include sub-agents; for other terms, create the
    /// [variant](Self::ApproveAlways).
    pub fn approve_always(scope: GrantScope, duration: GrantDuration) -> Self {
        Self::ApproveAlways(GrantTerms::new(scope, duration))
    }

    /// Creates a verdict that denies the call. The model receives `why` as the reason.
    pub fn deny(why: impl Into<String>) -> Self {
        Self::Deny(why.into())
    }

    /// Returns whether the verdict lets the call run. With any other verdict, the tool is not
    /// called.
    pub fn is_approval(&self) -> bool {
        match self {
            Self::Approve | Self::ApproveAlways(_) => true,
            Self::Deny(_) | Self::Output(_) => false,
        }
    }

    /// Creates a verdict that makes `output` the call's result, without running the call.
    pub fn output(output: impl IntoToolOutput) -> Self {
        Self::Output(output.into_tool_output())
    }
}
