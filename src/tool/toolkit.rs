//! An agent's tools.

use std::borrow::Cow;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::env::TimeLimit;
use crate::error::catch_panic;
use crate::http::Timeouts;
use crate::item::{ToolCall, ToolResult};
use crate::request::{ToolSpec, ToolSpecs};
use crate::tool::search::{CALL_TOOL, SearchState, ToolSearch};
use crate::tool::unwrapped_call;
use crate::tool::with_rationale::RationaleMode;
use crate::tool::{DEFAULT_TIMEOUT, Tool};

/// The default maximum number of calls from one turn that run concurrently.
const DEFAULT_MAX_CONCURRENCY: usize = 4;

/// The default maximum length of a result's text in the history, in bytes.
const DEFAULT_MAX_RESULT_BYTES: usize = 64 * 1024;

type OnTruncate = dyn Fn(&ToolCall, &ToolResult) -> Option<String> + Send + Sync;

/// An agent's tools, together with the settings for running calls to them. A `Toolkit` is cheap to
/// clone.
///
/// ```
/// use turnstream::tool::{Tool, ToolSpec, Toolkit};
///
/// let schema = serde_json::json!({ "type": "object", "properties": {} });
/// let spec = ToolSpec::new("now", "Tells the time", schema);
/// let kit = Toolkit::new([Tool::raw(spec, |_args, _cx| async { "noon" })?]);
/// assert_eq!(kit.specs().len(), 1);
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Clone)]
pub struct Toolkit {
    tools: Arc<[Tool]>,
    specs: ToolSpecs,
    search: Option<Arc<SearchState>>,
    max_concurrency: usize,
    first_call_only: bool,
    is_dry_run: bool,
    rationale: RationaleMode,
    timeout: TimeLimit,
    max_result_bytes: usize,
    on_truncate: Option<Arc<OnTruncate>>,
}

impl Default for Toolkit {
    fn default() -> Self {
        Self::new([])
    }
}

impl Toolkit {
    /// Creates a toolkit that contains the given tools.
    ///
    /// Tool names must be unique. A request that offers two tools with the same name fails with an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error before it is sent. To replace a
    /// tool, use [`with_replaced_tool`](Self::with_replaced_tool).
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Self {
        let tools: Arc<[Tool]> = tools.into_iter().collect();
        let specs = tools.iter().map(|tool| tool.spec().clone()).collect();
        Self {
            tools,
            specs,
            search: None,
            max_concurrency: DEFAULT_MAX_CONCURRENCY,
            first_call_only: false,
            is_dry_run: false,
            rationale: RationaleMode::None,
            timeout: TimeLimit::Default(DEFAULT_TIMEOUT),
            max_result_bytes: DEFAULT_MAX_RESULT_BYTES,
            on_truncate: None,
        }
    }

    /// Lets the model search for tools, instead of listing all of them in every request. Each
    /// request then lists only the tools `search_tools` and `call_tool`, which are encoded as the
    /// same bytes in every request, even when other tools are added to the toolkit.
    ///
    /// The model finds tools by calling `search_tools`, which returns their schemas. The model then
    /// uses `call_tool` to call the tools that it has found. A call inside `call_tool` is treated
    /// as a call to the inner tool. Policies, hooks, approvals, limits and events see the inner
    /// tool's name and arguments, and the arguments are checked against the inner tool's schema.
    /// The outer call appears only in the history, which contains this call exactly as the model
    /// wrote it and a result with the outer tool's name. The model may also call a tool directly by
    /// its own name.
    ///
    /// This method is equivalent to calling [`with_search`](Self::with_search) with the default
    /// settings.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec};
    /// use turnstream::{Agent, Toolkit};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let schema = json!({ "type": "object", "properties": {} });
    /// let spec = |name: &str, what: &str| ToolSpec::new(name, what, schema.clone());
    /// let weather = Tool::raw(spec("forecast", "The weather of tomorrow"), |_, _| async { "rain" })?;
    /// let clock = Tool::raw(spec("now", "The time"), |_, _| async { "noon" })?;
    /// let kit = Toolkit::new([weather, clock]).searchable();
    ///
    /// let model = Scripted::new([
    ///     Reply::new().call("search_tools", json!({ "query": "weather" })),
    ///     Reply::new().call("call_tool", json!({ "name": "forecast", "arguments": {} })),
    ///     Reply::text("It will rain."),
    /// ]);
    /// let outcome = Agent::new(model.clone()).with_toolkit(kit).run("Will it rain?").outcome().await;
    /// assert_eq!(outcome.text, "It will rain.");
    /// for request in model.requests() {
    ///     let listed: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
    ///     assert_eq!(listed, ["search_tools", "call_tool"]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn searchable(self) -> Self {
        self.with_search(ToolSearch::new())
    }

    /// Like [`searchable`](Self::searchable), lets the model search for tools, but uses the
    /// settings in `search` instead of the default settings.
    ///
    /// In a searchable toolkit, the other methods behave as follows:
    ///
    /// - [`with_tool`](Self::with_tool) and [`with_replaced_tool`](Self::with_replaced_tool) add or
    ///   replace a tool that can be found. A run fails with an
    ///   [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if a tool is named
    ///   `search_tools` or `call_tool`, or if two tools have the same name.
    /// - [`with_rationale`](Self::with_rationale) adds the rationale to the schemas of the tools
    ///   that can be found. The schemas of `search_tools` and `call_tool` stay unchanged.
    /// - [`restricted_to`](Self::restricted_to) keeps the tools named in its `specs` argument. If
    ///   `specs` contains `call_tool`, all unlisted tools are also kept. Otherwise, the restricted
    ///   toolkit is not searchable.
    /// - [`specs`](Self::specs) returns the specs of the listed tools, and [`get`](Self::get) finds
    ///   all tools, listed or not.
    ///
    /// A provider that has its own [tool search](crate::Provider::has_tool_search) receives the
    /// [complete list](Self::deferred_specs) instead of `search_tools` and `call_tool`.
    pub fn with_search(mut self, search: ToolSearch) -> Self {
        self.search = Some(Arc::new(SearchState::new(search, &self.tools)));
        self.rebuild_with_tools(self.tools.iter().cloned())
    }

    /// Adds a tool to the end of the toolkit. To replace a tool of the same name, use
    /// [`with_replaced_tool`](Self::with_replaced_tool): an agent's run fails if two tools have the
    /// same name.
    pub fn with_tool(self, tool: Tool) -> Self {
        self.with_tools([tool])
    }

    pub(crate) fn with_tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        let tools = self.tools.iter().cloned().chain(tools);
        self.rebuild_with_tools(tools)
    }

    /// Replaces the existing tool with the same name as `tool`, or adds `tool` if no such tool
    /// exists.
    ///
    /// ```
    /// use turnstream::{Tool, Toolkit};
    ///
    /// # #[cfg(feature = "schemars")] {
    /// let real = Tool::new("pay", "Pays a bill", |(), _cx| async { "paid" });
    /// let kit = Toolkit::new([real]);
    /// let fake = Tool::new("pay", "Pays a bill", |(), _cx| async { "as if paid" });
    /// assert_eq!(kit.with_replaced_tool(fake).specs().len(), 1);
    /// # }
    /// ```
    pub fn with_replaced_tool(self, tool: Tool) -> Self {
        let mut tools: Vec<Tool> = self.tools.to_vec();
        match tools.iter_mut().find(|other| other.name() == tool.name()) {
            Some(other) => *other = tool,
            None => tools.push(tool),
        }
        self.rebuild_with_tools(tools)
    }

    /// Sets the maximum number of calls from one turn that run concurrently. The default is 4.
    ///
    /// Sub-agents multiply the number of concurrent calls, because each sub-agent has its own
    /// limit.
    pub fn with_max_concurrency(mut self, calls: NonZeroUsize) -> Self {
        self.max_concurrency = calls.get();
        self
    }

    /// Runs only the first call in each turn. All other calls receive a `Skipped` result. An agent
    /// also asks the provider for at most one call per turn.
    pub fn first_call_only(mut self) -> Self {
        self.first_call_only = true;
        self
    }

    /// Sets whether calls are dry runs, which do not change anything. In a dry run, only tools that
    /// [support dry runs](Tool::with_dry_run_support) are called. A call to any other tool does not
    /// run, and the call's result only describes the call.
    pub fn with_dry_run(mut self, dry_run: bool) -> Self {
        self.is_dry_run = dry_run;
        self
    }

    /// Sets the time limit for calls to tools without a [limit of their own](Tool::with_timeout).
    /// The default limit is [`DEFAULT_TIMEOUT`] (10 minutes).
    /// [`Timeouts::NEVER`](crate::http::Timeouts::NEVER) removes the limit. Sub-agents have no
    /// limit by default.
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.timeout = TimeLimit::Explicit(limit);
        self
    }

    /// Sets the maximum length of a result's text, in bytes. The default is 65,536.
    ///
    /// Longer text is [truncated](crate::item::Content::truncate_middle) before the consumer or the
    /// model sees the result. The start and the end of the text are kept.
    pub fn with_max_result_bytes(mut self, max_bytes: usize) -> Self {
        self.max_result_bytes = max_bytes;
        self
    }

    /// Sets a function that can store a result elsewhere before the result is truncated.
    ///
    /// `keep` receives the complete result, and is called synchronously during the poll in which
    /// the result arrives. `keep` returns a string, for example the path to a file that contains
    /// the complete result. This string is added to the truncation marker that the model reads. If
    /// `keep` panics, no string is added.
    ///
    /// ```
    /// use turnstream::Toolkit;
    ///
    /// let kit = Toolkit::default().on_truncate(|call, result| {
    ///     let path = std::env::temp_dir().join(&call.call_id);
    ///     std::fs::write(&path, result.content.text()).ok()?;
    ///     Some(format!("The whole is in {}.", path.display()))
    /// });
    /// # drop(kit);
    /// ```
    pub fn on_truncate(
        mut self,
        keep: impl Fn(&ToolCall, &ToolResult) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.on_truncate = Some(Arc::new(keep));
        self
    }

    /// Asks the model to state its rationale for each call in an extra argument, `_why`, which the
    /// tool does not receive; see [`Tool::with_rationale`]. This also applies to tools that are
    /// added later. A [trace](crate::Trace) shows each call's rationale.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use serde_json::json;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec, Toolkit};
    /// use turnstream::{Agent, EventStreamExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([
    ///     Reply::new().call("roll", json!({ "_why": { "expected_outcome": "a number" } })),
    ///     Reply::text("It is a six."),
    /// ]);
    /// let spec = ToolSpec::new(
    ///     "roll",
    ///     "Rolls a die",
    ///     json!({ "type": "object", "properties": {}, "additionalProperties": false }),
    /// );
    /// let roll = Tool::raw(spec, |_args, _cx| async { 6 })?;
    /// let agent = Agent::new(model).with_toolkit(Toolkit::new([roll]).with_rationale());
    ///
    /// let trace = agent.new_trace();
    /// agent.run("Roll a die").trace_to(&trace).for_each(|_| async {}).await;
    /// assert!(trace.events()[0].to_string().contains("\"expected_outcome\":\"a number\""));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_rationale(mut self) -> Self {
        self.rationale = RationaleMode::Optional;
        self.rebuild_with_tools(self.tools.iter().cloned())
    }

    /// Requires the model to state the expected outcome of each call, so that each step of an
    /// audited run says what it was for. This is [`with_rationale`](Self::with_rationale), except
    /// that `_why` and its `expected_outcome` are required: a call without them receives an
    /// [`InvalidArguments`](crate::item::ResultKind::InvalidArguments) result and does not run.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::Toolkit;
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let schema = json!({ "type": "object", "properties": {} });
    /// let tool = Tool::raw(ToolSpec::new("deploy", "", schema), |_, _| async { "deployed" })?;
    /// let kit = Toolkit::new([tool]).with_required_rationale();
    ///
    /// let deploy = kit.get("deploy").unwrap();
    /// assert!(deploy.prepare("{}").is_err());
    /// assert!(deploy.prepare(r#"{"_why":{"expected_outcome":"The site is up"}}"#).is_ok());
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn with_required_rationale(mut self) -> Self {
        self.rationale = RationaleMode::Required;
        self.rebuild_with_tools(self.tools.iter().cloned())
    }

    /// Returns a copy of the toolkit that contains only the tools named in `specs`. The copy treats
    /// all other tools as unknown.
    pub fn restricted_to(&self, specs: &[ToolSpec]) -> Self {
        let named: HashSet<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let is_named = |name: &str| named.contains(name);
        if let Some(search) = &self.search {
            let calls_others = is_named(CALL_TOOL);
            let is_offered = |tool: &&Tool| {
                is_named(tool.name()) || calls_others && !search.settings.lists(tool.name())
            };
            let search = self.search.clone().filter(|_| calls_others);
            let toolkit = Self { search, ..self.clone() };
            return toolkit.rebuild_with_tools(self.tools.iter().filter(is_offered).cloned());
        }
        let is_offered = |tool: &&Tool| is_named(tool.name());
        self.rebuild_with_tools(self.tools.iter().filter(is_offered).cloned())
    }

    /// Returns a copy of the toolkit with `tools` added after the existing tools.
    pub(crate) fn merged_with(&self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.rebuild_with_tools(self.tools.iter().cloned().chain(tools))
    }

    /// Returns the tool named `name`, if any. If several tools have this name, returns the first of
    /// these tools.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        if let Some(tool) = self.search.as_ref().and_then(|search| search.get(name)) {
            return Some(tool);
        }
        self.tools.iter().find(|tool| tool.name() == name)
    }

    /// Returns whether only the first call in each turn runs. An agent then asks the provider for
    /// one call per turn, with
    /// [`parallel_tool_calls`](crate::request::Options::parallel_tool_calls); a loop of your own
    /// should do the same.
    pub fn is_first_call_only(&self) -> bool {
        self.first_call_only
    }

    /// Returns whether calls are dry runs, which do not change anything. In a dry run, only tools
    /// that [support dry runs](Tool::with_dry_run_support) are called.
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Returns the specs of the tools that a request lists, in the order in which the request lists
    /// them.
    ///
    /// If the toolkit is searchable, a request lists `search_tools`, `call_tool` and the
    /// always-listed tools, but no other tools.
    pub fn specs(&self) -> ToolSpecs {
        self.specs.clone()
    }

    /// Returns the specs of all tools, for a provider that has its own [tool
    /// search](crate::Provider::has_tool_search). Tools that are not always listed are marked as
    /// [deferred](ToolSpec::deferred). If the toolkit is not searchable, this method returns the
    /// same list as [`specs`](Self::specs).
    pub fn deferred_specs(&self) -> ToolSpecs {
        if let Some(search) = &self.search {
            return search.deferred_specs.clone();
        }
        self.specs()
    }

    /// Returns whether `specs` contains every spec that a request with this toolkit offers.
    pub(crate) fn offers_all(&self, specs: &ToolSpecs) -> bool {
        specs.is_same(&self.specs) || specs.is_same(&self.deferred_specs())
    }

    /// Returns the inner call if `call` is a call to `call_tool` and the toolkit is searchable.
    /// Otherwise, returns `call` unchanged.
    pub(crate) fn unwrapped_call<'a>(&self, call: &'a ToolCall) -> Cow<'a, ToolCall> {
        if self.search.is_some() {
            return unwrapped_call(call);
        }
        Cow::Borrowed(call)
    }

    /// Returns whether a call to the tool named `name` may contain another call.
    pub(crate) fn wraps_calls(&self, name: &str) -> bool {
        self.search.is_some() && name == CALL_TOOL
    }

    /// Returns a list of the available tools, as text for the result of a call to an unknown tool.
    pub(super) fn available_tools_message(&self, name: &str) -> String {
        if let Some(search) = &self.search {
            return search.suggestions(name);
        }
        self.specs.names_message()
    }

    /// Returns a copy of the toolkit in which `tools` replace the existing tools.
    fn rebuild_with_tools(&self, tools: impl IntoIterator<Item = Tool>) -> Self {
        let audit = |tool: Tool| tool.asking_for_rationale(self.rationale);
        let tools: Arc<[Tool]> = tools.into_iter().map(audit).collect();
        if let Some(search) = &self.search {
            let search = SearchState::new(search.settings.clone(), &tools);
            let specs = search.listed_specs(&tools);
            return Self { tools, specs, search: Some(Arc::new(search)), ..self.clone() };
        }
        let specs = tools.iter().map(|tool| tool.spec().clone()).collect();
        Self { tools, specs, ..self.clone() }
    }

    pub(super) fn max_concurrency(&self) -> usize {
        self.max_concurrency
    }

    /// Returns the time limit for calls to a tool, or `None` if they have no time limit.
    pub(super) fn time_limit(&self, tool: &Tool) -> Option<TimeLimit> {
        let limit = match (tool.timeout(), self.timeout) {
            (Some(limit), _) => TimeLimit::Explicit(limit),
            (None, TimeLimit::Default(_)) if tool.runs_sub_agents() => {
                TimeLimit::Explicit(Timeouts::NEVER)
            }
            (None, limit) => limit,
        };
        (limit.duration() < Timeouts::NEVER).then_some(limit)
    }

    /// Truncates a result to the toolkit's maximum result length.
    pub(super) fn truncate_result(&self, call: &ToolCall, mut result: ToolResult) -> ToolResult {
        if result.content.text_len() <= self.max_result_bytes {
            return result;
        }
        let stored_text = self
            .on_truncate
            .as_deref()
            .and_then(|keep| catch_panic(|| keep(call, &result)).unwrap_or_default());
        if let Some(clipped) =
            result.content.truncate_middle(self.max_result_bytes, stored_text.as_deref())
        {
            result.content = clipped;
        }
        result
    }
}

impl_debug!(
    Toolkit(it),
    tools = it.tools,
    max_concurrency = it.max_concurrency,
    first_call_only = it.first_call_only,
    dry_run = it.is_dry_run,
    max_result_bytes = it.max_result_bytes,
);
