//! A tool and its settings.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::item::model_json;
use crate::request::ToolSpec;
use crate::tool::args_schema;
use crate::tool::handler::FnHandler;
use crate::tool::settings::{ToolFlag, ToolSettings};
use crate::tool::{PreparedCall, ToolContext, ToolHandler, UpdateStream};

/// A tool that a model can call. It consists of a name, a description, a schema, and the code that
/// runs the calls. A `Tool` is cheap to clone.
///
/// If a tool fails or panics, the model receives the failure as the result of the call, and the run
/// continues.
///
/// ```
/// use turnstream::tool::Tool;
///
/// # #[cfg(feature = "schemars")] {
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     /// The first number.
///     a: i64,
///     b: i64,
/// }
///
/// let add = Tool::new("add", "Adds two numbers", |args: Add, _cx| async move {
///     args.a.checked_add(args.b).ok_or("the sum is too large")
/// });
/// assert_eq!(add.spec().parameters.to_value()["required"], serde_json::json!(["a", "b"]));
/// # }
/// ```
#[derive(Clone)]
pub struct Tool {
    pub(super) handler: Arc<dyn ToolHandler>,
    pub(super) settings: ToolSettings,
    /// The fingerprint of the tool's definition, if the tool's source supplies one.
    pub(super) fingerprint: Option<Arc<str>>,
    /// The agent that the tool runs, or `None` for a tool that does not run an agent.
    pub(super) agent: Option<AgentBacking>,
}

/// A function that resumes a suspended call, given the call's context and arguments.
type ResumeFn = dyn Fn(ToolContext, &str) -> UpdateStream + Send + Sync;

/// The agent from which a tool was created, and the function that resumes a suspended call to the
/// tool.
#[derive(Clone)]
pub(super) struct AgentBacking {
    agent: Arc<dyn Any + Send + Sync>,
    resume_fn: Arc<ResumeFn>,
}

impl Tool {
    /// Creates a tool from a handler, without checking the handler's name and schema.
    pub fn from_handler(handler: impl ToolHandler + 'static) -> Self {
        let settings = ToolSettings::default();
        Self { handler: Arc::new(handler), settings, fingerprint: None, agent: None }
    }

    /// Returns the tool's name, description and schema, as shown to the model.
    pub fn spec(&self) -> &ToolSpec {
        self.handler.spec()
    }

    /// Returns the name by which the model calls the tool.
    pub fn name(&self) -> &str {
        &self.spec().name
    }

    /// Makes each call to the tool run alone, without any other call from the same turn running at
    /// the same time.
    ///
    /// An exclusive call starts after all earlier calls in the turn have ended, and later calls
    /// start after the exclusive call has ended. Calls to other tools may run concurrently, up to
    /// the limit set by [`Toolkit::with_max_concurrency`](crate::Toolkit::with_max_concurrency).
    pub fn exclusive(self) -> Self {
        self.with_flag(ToolFlag::Exclusive)
    }

    /// Sets the time limit for each call. A call that takes longer than `limit` is dropped and
    /// receives a [`Timeout`](crate::item::ResultKind::Timeout) result, while the turn's other
    /// calls continue. The default is the limit set by
    /// [`Toolkit::with_timeout`](crate::Toolkit::with_timeout), if any, and otherwise
    /// [`DEFAULT_TIMEOUT`](crate::tool::DEFAULT_TIMEOUT) (10 minutes).
    /// [`Timeouts::NEVER`](crate::http::Timeouts::NEVER) removes the limit.
    ///
    /// The time limit starts when the call is first polled. On each poll, the tool is polled before
    /// the timer, so a result that is already available is accepted even after the time limit has
    /// expired. Tools advance only while the [`ToolRun`](crate::tool::ToolRun) is polled, so they
    /// pause whenever the run's consumer pauses. The time between an emitted event and the next
    /// poll therefore does not count towards the limit.
    ///
    /// A thread cannot be dropped, so blocking work should check
    /// [`is_cancelled`](crate::tool::ToolContext::is_cancelled) between steps. If a thread returns
    /// a result after the timeout, the result is discarded.
    ///
    /// Time limits use tokio's timer. If no tokio runtime with an enabled time driver is available,
    /// the default limit does not apply, and a call with an explicit limit ends with an error
    /// unless it completes in its first poll.
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.settings.timeout = Some(limit);
        self
    }

    /// Requires an approval before each call to the tool. An agent's run then ends with the reason
    /// `pending`, or waits if it is [interactive](crate::Agent::interactive). In a hand-written
    /// loop, a [`ToolPolicy`](crate::tool::ToolPolicy) handles the approvals, without which the
    /// call is denied.
    pub fn requires_approval(self) -> Self {
        self.with_flag(ToolFlag::RequiresApproval)
    }

    /// Declares that the tool runs agents when it is called. Tools created by
    /// [`Agent::as_tool`](crate::Agent::as_tool) are already declared in this way. A call to such a
    /// tool does not occupy any of the concurrency slots
    /// [shared](crate::agent::Pool::with_max_concurrency) by its tree of agents. If the call
    /// occupied a slot, the agents that it runs could wait forever for another slot. The default
    /// time limit for tools does not apply to calls that run agents.
    pub fn running_sub_agents(self) -> Self {
        self.with_flag(ToolFlag::RunsSubAgents)
    }

    /// Allows the tool to be called in a [dry run](crate::Toolkit::with_dry_run). The tool must
    /// either check [`is_dry_run`](crate::tool::ToolContext::is_dry_run) before changing anything,
    /// or never change anything.
    pub fn with_dry_run_support(self) -> Self {
        self.with_flag(ToolFlag::SupportsDryRun)
    }

    /// Declares that calls to the tool may run again after being interrupted by a crash. Running
    /// the tool twice with the same arguments and the same [idempotency
    /// key](crate::tool::ToolContext::idempotency_key) must have the same effect as running it
    /// once.
    ///
    /// A tool that only reads data is idempotent. A tool is also idempotent if it passes the
    /// idempotency key to a service that recognises repeated keys. A
    /// [session](crate::session::Session) that is opened after a crash may contain a call that
    /// started but has no result. If the tool is not idempotent, a call that was interrupted by a
    /// crash never runs again, and its result tells the model about the interruption. If the tool
    /// is idempotent, the call runs again, and hooks and approvals apply to it again.
    ///
    /// ```
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let schema = serde_json::json!({ "type": "object", "properties": {} });
    /// let spec = ToolSpec::new("pay", "Pays a bill", schema);
    /// let pay = Tool::raw(spec, |_args, cx| async move {
    ///     // The bank ignores a request with a known key.
    ///     format!("paid, under the key {}", cx.idempotency_key())
    /// })?
    /// .idempotent();
    /// assert!(pay.is_idempotent());
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn idempotent(self) -> Self {
        self.with_flag(ToolFlag::Idempotent)
    }

    /// Declares that the model is expected to call the tool repeatedly, even if it returns the same
    /// result for a long time. An example is a tool that polls the progress of a job.
    ///
    /// When an agent counts [repeated turns](crate::agent::Limits::nudge_after_repeats), it ignores
    /// calls to a pollable tool, regardless of their results. Calls to a pollable tool never cause
    /// the model to be asked to try something else, and never end the run with the reason
    /// [`Repeating`](crate::event::EndReason::Repeating). A turn that only polls neither increases
    /// nor resets the count, so the sequence of turns "A, poll, A" counts as "A, A". Polling is
    /// therefore limited only by the request limit and by [budgets](crate::Agent::with_budget). To
    /// save requests and budget, a pollable tool can wait for a while before it answers. The
    /// detector for a [missing termination](crate::agent::detect::MissingTermination) counts
    /// polling turns like any other turn.
    ///
    /// ```
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let spec = ToolSpec::new(
    ///     "job_status",
    ///     "Waits for up to a minute, and tells how far the job is",
    ///     serde_json::json!({ "type": "object", "properties": {} }),
    /// );
    /// let status = Tool::raw(spec, |_args, _cx| async { "still running" })?.pollable();
    /// assert!(status.is_pollable());
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn pollable(self) -> Self {
        self.with_flag(ToolFlag::Pollable)
    }

    /// Requires the provider to guarantee that the arguments of each call match the tool's schema;
    /// see [`ToolSpec::strict`].
    ///
    /// ```
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let schema = serde_json::json!({
    ///     "type": "object",
    ///     "properties": { "city": { "type": "string" } },
    ///     "required": ["city"],
    /// });
    /// let book = Tool::raw(ToolSpec::new("book", "Books a table", schema), |_, _| async { "ok" })?;
    /// assert!(book.strict().spec().strict);
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn strict(self) -> Self {
        let spec = self.spec().clone().with_strict(true);
        let Self { handler, settings, fingerprint, agent } = self;
        let prepare = move |_: &ToolSpec, arguments: &str| handler.prepare(arguments);
        Self { settings, fingerprint, agent, ..Self::from_prepare_fn(spec, prepare) }
    }

    /// Returns the keywords of the tool's schema that the arguments of a [raw](Self::raw) tool are
    /// not checked against. Its closure must check these values itself.
    ///
    /// With the feature `validate`, the list is empty. Without it, the list may contain `pattern`,
    /// `patternProperties`, `uniqueItems`, `contains`, `propertyNames`, `if`, the keywords for
    /// dependent and unevaluated properties, and a `$ref` that points to nothing in the schema,
    /// such as one to another document.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let mut schema = json!({ "type": "object", "properties": { "date": { "type": "string" } } });
    /// schema["properties"]["date"]["pattern"] = json!("^[0-9-]+$");
    /// let book = Tool::raw(ToolSpec::new("book", "Books a table", schema), |_, _| async { "ok" })?;
    /// let expected: &[&str] = if cfg!(feature = "validate") { &[] } else { &["pattern"] };
    /// assert_eq!(book.unchecked_keywords(), expected);
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn unchecked_keywords(&self) -> Vec<String> {
        args_schema::unchecked_keywords(&self.spec().parameters.to_value())
    }

    /// Returns whether the model is expected to call the tool repeatedly. Repeated calls with the
    /// same result then do not end a run; see [`pollable`](Self::pollable).
    pub fn is_pollable(&self) -> bool {
        self.settings.has_flag(ToolFlag::Pollable)
    }

    /// Returns whether an interrupted call to the tool may run again; see
    /// [`idempotent`](Self::idempotent).
    pub fn is_idempotent(&self) -> bool {
        self.settings.has_flag(ToolFlag::Idempotent)
    }

    /// Returns whether the tool runs agents when it is called. Its calls take no slot of a pool;
    /// see [`running_sub_agents`](Self::running_sub_agents).
    pub fn runs_sub_agents(&self) -> bool {
        self.settings.has_flag(ToolFlag::RunsSubAgents)
    }

    /// Returns whether each call to the tool runs alone, after earlier calls of its turn and before
    /// later ones; see [`exclusive`](Self::exclusive).
    pub fn is_exclusive(&self) -> bool {
        self.settings.has_flag(ToolFlag::Exclusive)
    }

    /// Returns the tool's own time limit, or `None` if it does not have one; see
    /// [`with_timeout`](Self::with_timeout).
    pub fn timeout(&self) -> Option<Duration> {
        self.settings.timeout
    }

    /// Returns whether each call to the tool requires an approval, without which it does not run;
    /// see [`requires_approval`](Self::requires_approval).
    pub fn is_approval_required(&self) -> bool {
        self.settings.has_flag(ToolFlag::RequiresApproval)
    }

    /// Returns whether the tool can be called in a dry run. A call to any other tool is then only
    /// described; see [`with_dry_run_support`](Self::with_dry_run_support).
    pub fn supports_dry_run(&self) -> bool {
        self.settings.has_flag(ToolFlag::SupportsDryRun)
    }

    /// Returns whether the tool runs outside the toolkit. Its calls stay pending until the program
    /// passes their results; see [`external`](Self::external).
    pub fn is_external(&self) -> bool {
        self.settings.has_flag(ToolFlag::External)
    }

    /// Returns whether the tool's calls count towards a limit on tool calls.
    pub(super) fn counts_as_call(&self) -> bool {
        !self.is_external() && !self.ends_run()
    }

    /// Returns whether both tools have the same spec and the same settings.
    pub(crate) fn is_described_like(&self, other: &Self) -> bool {
        self.settings == other.settings && (self.is_run_like(other) || self.spec() == other.spec())
    }

    /// Returns whether both tools share a handler and therefore run the same code.
    pub(crate) fn is_run_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handler, &other.handler)
    }

    /// Sets a fingerprint that changes whenever the tool's definition changes. Without a
    /// fingerprint, the definition consists of the tool's name, description and schema. A
    /// [source](crate::tool::ToolSource) whose tools have further properties, such as a server's
    /// hints, can include them in the fingerprint: a verdict on a pending call does not apply after
    /// the fingerprint has changed.
    pub fn with_fingerprint(mut self, fingerprint: &str) -> Self {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// Parses the arguments of a call and returns the call, without running anything; see
    /// [`ToolHandler::prepare`]. With this method, the handler of one tool can delegate its calls
    /// to another tool:
    ///
    /// ```
    /// use turnstream::Tool;
    /// use turnstream::tool::{PreparedCall, ToolHandler, ToolSpec};
    ///
    /// /// Prints the arguments of each call to a tool.
    /// struct Printed(Tool);
    ///
    /// impl ToolHandler for Printed {
    ///     fn spec(&self) -> &ToolSpec {
    ///         self.0.spec()
    ///     }
    ///
    ///     fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
    ///         println!("{arguments}");
    ///         self.0.prepare(arguments)
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns a message to the model if the arguments are invalid.
    pub fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
        self.handler.prepare(arguments)
    }

    /// Creates a tool from a function that prepares its calls.
    pub(crate) fn from_prepare_fn(
        spec: ToolSpec,
        prepare: impl Fn(&ToolSpec, &str) -> Result<PreparedCall, String> + Send + Sync + 'static,
    ) -> Self {
        Self::from_handler(FnHandler { spec, prepare_fn: prepare })
    }

    /// Sets the agent that the tool runs, and the function that resumes a suspended call.
    pub(crate) fn backed_by_agent(
        self,
        agent: Arc<dyn Any + Send + Sync>,
        resume: impl Fn(ToolContext, &str) -> UpdateStream + Send + Sync + 'static,
    ) -> Self {
        Self { agent: Some(AgentBacking { agent, resume_fn: Arc::new(resume) }), ..self }
    }

    /// Reads arguments as the tool's schema describes them: an integer may be written as `5.0`, and
    /// an optional argument that is not nullable as `null`. All other arguments are unchanged.
    pub(crate) fn read_arguments<'a>(&self, arguments: &'a str) -> Cow<'a, str> {
        let read = model_json::read_by_schema(&self.spec().parameters, arguments);
        read.map_or(Cow::Borrowed(arguments), Cow::Owned)
    }

    /// Returns the agent that the tool runs, or `None` if the tool was not created from an agent.
    pub(crate) fn agent<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.agent.as_ref()?.agent).downcast().ok()
    }

    /// Prepares a call that resumes the suspended run of the tool's agent. Returns `None` if the
    /// tool was not created from an agent.
    pub(super) fn prepare_resumed(&self, arguments: &str) -> Option<PreparedCall> {
        let resume = Arc::clone(&self.agent.as_ref()?.resume_fn);
        let arguments = arguments.to_owned();
        Some(PreparedCall::new(move |cx| resume(cx, &arguments)))
    }

    /// Returns the tool's definition, with which a request for a verdict is stored.
    pub(crate) fn definition(&self) -> String {
        match &self.fingerprint {
            Some(fingerprint) => fingerprint.to_string(),
            // Invariant: a spec consists of strings, a bool and serialized JSON.
            None => serde_json::to_string(self.spec()).unwrap_or_default(),
        }
    }

    pub(super) fn with_flag(mut self, mark: ToolFlag) -> Self {
        self.settings.set_flag(mark);
        self
    }
}

impl_debug!(Tool(it), name = it.name());

/// Checks the name and the schema in a spec, before any request is sent.
pub(crate) fn validate_spec(spec: ToolSpec) -> Result<ToolSpec, Error> {
    use crate::error::ErrorKind::InvalidRequest;

    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if spec.name.is_empty() || spec.name.len() > 64 || !spec.name.chars().all(is_name) {
        let message = "a tool's name has 1 to 64 letters, digits, '_' and '-'";
        return Err(Error::new(InvalidRequest, message).with_parameter(spec.name));
    }
    if spec.client_tool.is_some() && (spec.deferred || spec.strict) {
        let parameter = if spec.deferred { "deferred" } else { "strict" };
        let message = format!("the client tool `{}` cannot be {parameter}", spec.name);
        return Err(Error::new(InvalidRequest, message).with_parameter(parameter));
    }
    if spec.parameters.to_value()["type"] != "object" {
        let message = format!(
            "the schema of the tool `{}` is not of type `object`; make it the schema of a field of an object",
            spec.name
        );
        return Err(Error::new(InvalidRequest, message));
    }
    Ok(spec)
}
