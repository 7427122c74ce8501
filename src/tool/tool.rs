//! A tool, and how it wants to be run.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::request::ToolSpec;
use crate::tool::handler::FnHandler;
use crate::tool::settings::{ToolFlag, ToolSettings};
use crate::tool::{PreparedCall, ToolContext, ToolHandler, UpdateStream};

/// A tool: what the model is told of it, and what runs when it is called. Cheap to clone.
///
/// A failure of any kind, a panic included, becomes a result that the model reads; it never ends
/// the run.
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
    /// `Some` if it was made of an agent.
    pub(super) agent: Option<AgentBacking>,
}

/// How a call with these arguments continues.
type ResumeFn = dyn Fn(ToolContext, &str) -> UpdateStream + Send + Sync;

/// What a tool that was made of an agent has besides.
#[derive(Clone)]
pub(super) struct AgentBacking {
    agent: Arc<dyn Any + Send + Sync>,
    resume_fn: Arc<ResumeFn>,
}

impl Tool {
    /// Makes a tool of a handler. Name and schema are the handler's own business; they are not
    /// checked here.
    pub fn from_handler(handler: impl ToolHandler + 'static) -> Self {
        Self { handler: Arc::new(handler), settings: ToolSettings::default(), agent: None }
    }

    /// What the model is told of it.
    pub fn spec(&self) -> &ToolSpec {
        self.handler.spec()
    }

    /// The name that the model calls it by.
    pub fn name(&self) -> &str {
        &self.spec().name
    }

    /// Runs each call alone: nothing else of its turn runs beside it.
    ///
    /// Calls that stand before it in the turn end first, and those behind it begin when it has
    /// ended. Any other tool is safe beside others, up to
    /// [`Toolkit::with_max_concurrency`](crate::Toolkit::with_max_concurrency) of them.
    pub fn exclusive(self) -> Self {
        self.with_flag(ToolFlag::Exclusive)
    }

    /// Drops a call that takes longer than `limit`; [`DEFAULT_TIMEOUT`](crate::tool::DEFAULT_TIMEOUT), 10 minutes, unless this or
    /// [`Toolkit::with_timeout`](crate::Toolkit::with_timeout) is set. Its result is then of kind
    /// [`Timeout`](crate::item::ResultKind::Timeout); its siblings continue.
    /// [`Timeouts::NEVER`](crate::http::Timeouts::NEVER) lifts the limit.
    ///
    /// The time begins when the call is first polled. A tool is polled before its timer is looked
    /// at, so a result that is there counts. Tools advance only while the
    /// [`ToolRun`](crate::tool::ToolRun) is polled, so a consumer that pauses pauses them; the time
    /// from an event that was given out to the next poll is therefore not counted.
    ///
    /// A thread cannot be dropped: blocking work looks at
    /// [`is_cancelled`](crate::tool::ToolContext::is_cancelled) between two steps, and what it
    /// returns later is dropped.
    ///
    /// The timer is tokio's. Outside of a tokio runtime, or in one whose time is not enabled, the
    /// default does not hold, and a call of a tool with a limit of its own that is not done at its
    /// first poll ends with an error.
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.settings.timeout = Some(limit);
        self
    }

    /// Lets no call run before somebody has approved it; see [`ToolPolicy`](crate::tool::ToolPolicy).
    pub fn requires_approval(self) -> Self {
        self.with_flag(ToolFlag::RequiresApproval)
    }

    /// Says that each call runs agents of its own. Such a call takes none of the slots that its tree
    /// of agents [shares](crate::agent::Pool::with_max_concurrency): what it runs takes them, and would
    /// wait for it for ever. The default time limit of tools does not hold for it. A tool that
    /// [`Agent::as_tool`](crate::Agent::as_tool) makes is one.
    pub fn running_sub_agents(self) -> Self {
        self.with_flag(ToolFlag::RunsSubAgents)
    }

    /// Lets calls run in a [dry run](crate::Toolkit::with_dry_run), too: the tool looks at
    /// [`is_dry_run`](crate::tool::ToolContext::is_dry_run) itself, or changes nothing ever.
    pub fn with_dry_run_support(self) -> Self {
        self.with_flag(ToolFlag::SupportsDryRun)
    }

    /// Lets a call that was broken off by a crash run again: done twice with the same arguments and
    /// the same [idempotency key](crate::tool::ToolContext::idempotency_key), it has the effect of
    /// once.
    ///
    /// A tool that only reads is idempotent, and so is one that hands the key to a service that
    /// knows it again. Whatever else was begun and has no result when a
    /// [session](crate::session::Session) is opened is never run again: the model is told that it was
    /// interrupted. A call that runs again passes hooks and approvals again.
    ///
    /// ```
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let spec = ToolSpec::new("pay", "Pays a bill", serde_json::json!({ "type": "object" }));
    /// let pay = Tool::raw(spec, |_args, cx| async move {
    ///     // The bank does nothing for a key that it has seen.
    ///     format!("paid, under the key {}", cx.idempotency_key())
    /// })?
    /// .idempotent();
    /// assert!(pay.is_idempotent());
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn idempotent(self) -> Self {
        self.with_flag(ToolFlag::Idempotent)
    }

    /// Says that the model is meant to call it again and again, and that its result may stay the same
    /// for a long time: it asks how far a job is.
    ///
    /// An agent leaves such calls out when it counts turns that [repeat](crate::agent::RepeatCounter), whatever
    /// their results are: the model is not told to try something else, and the run does not end as
    /// [`Repeating`](crate::event::EndReason::Repeating). A turn without other calls is not counted at all, and
    /// resets nothing: A, a poll, A is counted as A A. Polling is bounded by the cap on requests and by
    /// [budgets](crate::Agent::with_budget) alone; a poll that waits for a while inside the tool saves both.
    /// The detector of a [missing termination](crate::agent::detect::MissingTermination) counts such turns
    /// like any others.
    ///
    /// ```
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let spec = ToolSpec::new(
    ///     "job_status",
    ///     "Waits for up to a minute, and tells how far the job is",
    ///     serde_json::json!({ "type": "object" }),
    /// );
    /// let status = Tool::raw(spec, |_args, _cx| async { "still running" })?.pollable();
    /// assert!(status.is_pollable());
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn pollable(self) -> Self {
        self.with_flag(ToolFlag::Pollable)
    }

    /// Whether it may be called again and again.
    pub fn is_pollable(&self) -> bool {
        self.settings.has_flag(ToolFlag::Pollable)
    }

    /// Whether a call that was broken off may run again.
    pub fn is_idempotent(&self) -> bool {
        self.settings.has_flag(ToolFlag::Idempotent)
    }

    /// Whether each call runs agents of its own.
    pub fn runs_sub_agents(&self) -> bool {
        self.settings.has_flag(ToolFlag::RunsSubAgents)
    }

    /// Whether nothing else runs beside it.
    pub fn is_exclusive(&self) -> bool {
        self.settings.has_flag(ToolFlag::Exclusive)
    }

    /// The time limit of the tool's own, if it has one; see [`with_timeout`](Self::with_timeout).
    pub fn timeout(&self) -> Option<Duration> {
        self.settings.timeout
    }

    /// Whether somebody has to approve each call.
    pub fn is_approval_required(&self) -> bool {
        self.settings.has_flag(ToolFlag::RequiresApproval)
    }

    /// Whether it runs in a dry run.
    pub fn supports_dry_run(&self) -> bool {
        self.settings.has_flag(ToolFlag::SupportsDryRun)
    }

    /// Whether somebody outside runs it.
    pub fn is_external(&self) -> bool {
        self.settings.has_flag(ToolFlag::External)
    }

    /// Whether a model, and those who run calls, know the same of both.
    pub(crate) fn is_described_like(&self, other: &Self) -> bool {
        self.settings == other.settings && (self.is_run_like(other) || self.spec() == other.spec())
    }

    /// Whether calls of both run the same.
    pub(crate) fn is_run_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handler, &other.handler)
    }

    /// Makes a tool of a function that prepares its calls.
    pub(crate) fn from_prepare_fn(
        spec: ToolSpec,
        prepare: impl Fn(&ToolSpec, &str) -> Result<PreparedCall, String> + Send + Sync + 'static,
    ) -> Self {
        Self::from_handler(FnHandler { spec, prepare_fn: prepare })
    }

    /// Names the agent that its calls run, and how a call with these arguments continues whose run was
    /// suspended.
    pub(crate) fn backed_by_agent(
        self,
        agent: Arc<dyn Any + Send + Sync>,
        resume: impl Fn(ToolContext, &str) -> UpdateStream + Send + Sync + 'static,
    ) -> Self {
        Self { agent: Some(AgentBacking { agent, resume_fn: Arc::new(resume) }), ..self }
    }

    /// Calls `observe` with the arguments of each call that fits, before anybody is asked to approve it.
    #[cfg(feature = "mcp")]
    pub(crate) fn with_prepare_observer(
        self,
        observe: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let Self { handler, settings, agent } = self;
        let spec = handler.spec().clone();
        let prepare = move |_: &ToolSpec, arguments: &str| {
            let prepared = handler.prepare(arguments)?;
            observe(arguments);
            Ok(prepared)
        };
        Self { settings, agent, ..Self::from_prepare_fn(spec, prepare) }
    }

    /// Begins a call within another tool's call, whose context it has.
    #[cfg(feature = "mcp")]
    pub(crate) fn begin(&self, arguments: &str, cx: ToolContext) -> Result<UpdateStream, String> {
        self.handler.prepare(arguments)?.start(cx)
    }

    /// The agent that its calls run, if it was made of one.
    pub(crate) fn agent<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.agent.as_ref()?.agent).downcast().ok()
    }

    /// A call that continues a run that was suspended, if it was made of an agent.
    pub(super) fn prepare_resumed(&self, arguments: &str) -> Option<PreparedCall> {
        let resume = Arc::clone(&self.agent.as_ref()?.resume_fn);
        let arguments = arguments.to_owned();
        Some(PreparedCall::new(move |cx| resume(cx, &arguments)))
    }

    pub(super) fn with_flag(mut self, mark: ToolFlag) -> Self {
        self.settings.set_flag(mark);
        self
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// A spec whose schema was looked at: what is wrong with it is found before a model sees it.
pub(crate) fn validate_spec(spec: ToolSpec) -> Result<ToolSpec, Error> {
    use crate::error::ErrorKind::InvalidRequest;

    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if spec.name.is_empty() || spec.name.len() > 64 || !spec.name.chars().all(is_name) {
        let message = "a tool's name has 1 to 64 letters, digits, '_' and '-'";
        return Err(Error::new(InvalidRequest, message).with_parameter(spec.name));
    }
    if spec.parameters.to_value()["type"] != "object" {
        let message = format!("the schema of the tool `{}` is not of type `object`", spec.name);
        return Err(Error::new(InvalidRequest, message));
    }
    Ok(spec)
}
