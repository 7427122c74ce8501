//! The tools that an agent has.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::env::TimeLimit;
use crate::error::catch_panic;
use crate::http::Timeouts;
use crate::item::{ToolCall, ToolResult};
use crate::request::ToolSpec;
#[cfg(feature = "tool-search")]
use crate::tool::search::{CALL_TOOL, SearchState, ToolSearch};
#[cfg(feature = "tool-search")]
use crate::tool::unwrapped_call;
use crate::tool::{DEFAULT_TIMEOUT, Tool};

/// At most so many calls of a turn run at once, unless told otherwise.
const DEFAULT_MAX_CONCURRENCY: usize = 4;

/// A result enters the history with at most so many bytes of text, unless told otherwise.
const DEFAULT_MAX_RESULT_BYTES: usize = 64 * 1024;

type OnTruncate = dyn Fn(&ToolCall, &ToolResult) -> Option<String> + Send + Sync;

/// The tools that an agent has, and how many may run at once. Cheap to clone.
///
/// ```
/// use turnstream::tool::{Tool, ToolSpec, Toolkit};
///
/// let spec = ToolSpec::new("now", "Tells the time", serde_json::json!({ "type": "object" }));
/// let kit = Toolkit::new([Tool::raw(spec, |_args, _cx| async { "noon" })?]);
/// assert_eq!(kit.specs().len(), 1);
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Clone)]
pub struct Toolkit {
    tools: Arc<[Tool]>,
    specs: Arc<[ToolSpec]>,
    #[cfg(feature = "tool-search")]
    search: Option<Arc<SearchState>>,
    max_concurrency: usize,
    first_call_only: bool,
    is_dry_run: bool,
    adds_rationale: bool,
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
    /// Makes a toolkit.
    ///
    /// Two tools of one name are a mistake: a request that offers both is an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), and nothing is sent.
    /// [`with_replaced_tool`](Self::with_replaced_tool) puts a tool in the place of another.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Self {
        let tools: Arc<[Tool]> = tools.into_iter().collect();
        let specs = tools.iter().map(|tool| tool.spec().clone()).collect();
        Self {
            tools,
            specs,
            #[cfg(feature = "tool-search")]
            search: None,
            max_concurrency: DEFAULT_MAX_CONCURRENCY,
            first_call_only: false,
            is_dry_run: false,
            adds_rationale: false,
            timeout: TimeLimit::Default(DEFAULT_TIMEOUT),
            max_result_bytes: DEFAULT_MAX_RESULT_BYTES,
            on_truncate: None,
        }
    }

    /// Lets the model search for tools instead of listing them: a request has two tools whose bytes never
    /// change, however many tools there are and whichever are added.
    ///
    /// The model finds tools with `search_tools`, whose result has their schemas, and calls them with `call_tool`. A
    /// call inside of `call_tool` is the call of its tool in every respect: policies, hooks, approvals, limits and
    /// events see the tool's own name and arguments, and these are checked against its schema. Only the history
    /// keeps the call and the name of its result as the model wrote them. A call of the tool by its own name runs, too.
    ///
    /// It is short for [`with_search`](Self::with_search) with the default settings.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec};
    /// use turnstream::{Agent, Toolkit};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let spec = |name: &str, what: &str| ToolSpec::new(name, what, json!({ "type": "object" }));
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
    #[cfg(feature = "tool-search")]
    pub fn searchable(self) -> Self {
        self.with_search(ToolSearch::new())
    }

    /// Lets the model search for tools instead of listing them, as [`searchable`](Self::searchable) does, with
    /// settings.
    ///
    /// The rest of the kit keeps its meaning:
    ///
    /// - [`with_tool`](Self::with_tool) and [`with_replaced_tool`](Self::with_replaced_tool) change the tools that can
    ///   be found. A tool of the name `search_tools` or `call_tool` is an
    ///   [`InvalidRequest`](crate::ErrorKind::InvalidRequest) of the run, as are two tools of one name.
    /// - [`with_rationale`](Self::with_rationale) asks for reasons in the arguments of the tools that are found. The two
    ///   constant tools stay as they are.
    /// - [`restricted_to`](Self::restricted_to) keeps the tools that are named. If `call_tool` is among them, it
    ///   also keeps those that are not listed. Without it the kit is not searchable any more.
    /// - [`specs`](Self::specs) are those that are listed, and [`get`](Self::get) finds all tools.
    ///
    /// A provider that [searches tools](crate::Provider::has_tool_search) itself gets the
    /// [whole list](Self::deferred_specs) instead of the two tools.
    #[cfg(feature = "tool-search")]
    pub fn with_search(mut self, search: ToolSearch) -> Self {
        self.search = Some(Arc::new(SearchState::new(search, &self.tools)));
        self.rebuild_with_tools(self.tools.iter().cloned())
    }

    /// Adds a tool.
    pub fn with_tool(self, tool: Tool) -> Self {
        let tools = self.tools.iter().cloned().chain([tool]);
        self.rebuild_with_tools(tools)
    }

    /// Puts a tool in the place of the one of its name, or adds it if there is none.
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

    /// Sets how many calls of a turn may run at once; 4 unless set.
    ///
    /// Sub-agents inside tools multiply it.
    pub fn with_max_concurrency(mut self, calls: NonZeroUsize) -> Self {
        self.max_concurrency = calls.get();
        self
    }

    /// Runs only the first call of a turn; the others are answered as skipped.
    pub fn first_call_only(mut self) -> Self {
        self.first_call_only = true;
        self
    }

    /// Sets whether nothing is changed: only tools that
    /// [know dry runs](Tool::with_dry_run_support) are called, and calls of the others are answered with
    /// what would have been called.
    pub fn with_dry_run(mut self, dry_run: bool) -> Self {
        self.is_dry_run = dry_run;
        self
    }

    /// Sets how long a call may take of a tool that has no [limit of its own](Tool::with_timeout);
    /// [`DEFAULT_TIMEOUT`], 10 minutes, unless set.
    /// [`Timeouts::NEVER`](crate::http::Timeouts::NEVER) lifts the limit. Sub-agents have none.
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.timeout = TimeLimit::Explicit(limit);
        self
    }

    /// Sets how many bytes of text a result may have; 65,536 unless set.
    ///
    /// What is longer is [clipped](crate::item::Content::truncate_middle) before anybody sees it: head and
    /// tail stay.
    pub fn with_max_result_bytes(mut self, max_bytes: usize) -> Self {
        self.max_result_bytes = max_bytes;
        self
    }

    /// Keeps the whole of results that are clipped somewhere else.
    ///
    /// `keep` is called with the whole result before it is clipped, in the poll in which it
    /// arrives. What it returns, for example where the whole lies, stands in the marker that the
    /// model reads. If it panics, nothing does.
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

    /// Makes every tool of the kit [audited](Tool::with_rationale), and those that are added to it later.
    pub fn with_rationale(mut self) -> Self {
        self.adds_rationale = true;
        self.rebuild_with_tools(self.tools.iter().cloned())
    }

    /// The same kit with only the tools that `specs` names: any other is unknown to it.
    pub fn restricted_to(&self, specs: &[ToolSpec]) -> Self {
        let is_named = |name: &str| specs.iter().any(|spec| spec.name == name);
        #[cfg(feature = "tool-search")]
        if let Some(search) = &self.search {
            let calls_others = is_named(CALL_TOOL);
            let is_offered = |tool: &&Tool| {
                is_named(tool.name()) || calls_others && !search.settings.lists(tool.name())
            };
            let search = self.search.clone().filter(|_| calls_others);
            let kit = Self { search, ..self.clone() };
            return kit.rebuild_with_tools(self.tools.iter().filter(is_offered).cloned());
        }
        let is_offered = |tool: &&Tool| is_named(tool.name());
        self.rebuild_with_tools(self.tools.iter().filter(is_offered).cloned())
    }

    /// The same kit with these tools after its own.
    pub(crate) fn merged_with(&self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.rebuild_with_tools(self.tools.iter().cloned().chain(tools))
    }

    /// The tool of this name, the first of several.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        #[cfg(feature = "tool-search")]
        if let Some(tool) = self.search.as_ref().and_then(|search| search.get(name)) {
            return Some(tool);
        }
        self.tools.iter().find(|tool| tool.name() == name)
    }

    /// Whether only the first call of a turn runs.
    pub fn is_first_call_only(&self) -> bool {
        self.first_call_only
    }

    /// Whether nothing is changed.
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Whether the model [searches](Self::searchable) for tools.
    #[cfg(feature = "tool-search")]
    pub fn is_searchable(&self) -> bool {
        self.search.is_some()
    }

    /// What the model is told of the tools, in order.
    ///
    /// A searchable kit has the specs of the tools that are always listed, and of the two that find and call the
    /// others.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    /// The specs for a provider that [searches tools](crate::Provider::has_tool_search) itself: those of all tools,
    /// with those that are not always listed marked as [deferred](ToolSpec::deferred). They are the
    /// [`specs`](Self::specs) if the kit is not searchable.
    pub fn deferred_specs(&self) -> Arc<[ToolSpec]> {
        #[cfg(feature = "tool-search")]
        if let Some(search) = &self.search {
            return Arc::clone(&search.deferred_specs);
        }
        self.specs()
    }

    /// Whether these are all tools that a request of this kit offers, and not a selection of them.
    pub(crate) fn offers_all(&self, specs: &Arc<[ToolSpec]>) -> bool {
        Arc::ptr_eq(specs, &self.specs) || Arc::ptr_eq(specs, &self.deferred_specs())
    }

    /// The call of a tool that is inside of this one, if the kit is searchable; otherwise this one.
    #[cfg_attr(
        not(feature = "tool-search"),
        expect(clippy::unused_self, reason = "only a searchable kit has such calls")
    )]
    pub(crate) fn unwrapped_call<'a>(&self, call: &'a ToolCall) -> Cow<'a, ToolCall> {
        #[cfg(feature = "tool-search")]
        if self.search.is_some() {
            return unwrapped_call(call);
        }
        Cow::Borrowed(call)
    }

    /// Whether another call may be inside of a call of this name.
    #[cfg_attr(
        not(feature = "tool-search"),
        expect(clippy::unused_self, reason = "only a searchable kit has such calls")
    )]
    pub(crate) fn wraps_calls(&self, name: &str) -> bool {
        #[cfg(feature = "tool-search")]
        return self.search.is_some() && name == CALL_TOOL;
        #[cfg(not(feature = "tool-search"))]
        {
            let _ = name;
            false
        }
    }

    /// The part of an unknown tool's result that names the tools that exist.
    pub(super) fn available_tools_message(&self, name: &str) -> String {
        #[cfg(feature = "tool-search")]
        if let Some(search) = &self.search {
            return search.suggestions(name);
        }
        let _ = name;
        match &*self.tools {
            [] => "There are no tools.".to_owned(),
            tools => {
                let names: Vec<_> = tools.iter().map(|tool| format!("`{}`", tool.name())).collect();
                format!("The tools are: {}.", names.join(", "))
            }
        }
    }

    /// The same kit with other tools.
    fn rebuild_with_tools(&self, tools: impl IntoIterator<Item = Tool>) -> Self {
        let audit = |tool: Tool| if self.adds_rationale { tool.with_rationale() } else { tool };
        let tools: Arc<[Tool]> = tools.into_iter().map(audit).collect();
        #[cfg(feature = "tool-search")]
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

    /// How long a call of the tool may take; `None` for as long as it likes.
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

    /// A result as it enters the history.
    pub(super) fn truncate_result(&self, call: &ToolCall, mut result: ToolResult) -> ToolResult {
        if result.content.text_len() <= self.max_result_bytes {
            return result;
        }
        let kept = self
            .on_truncate
            .as_deref()
            .and_then(|keep| catch_panic(|| keep(call, &result)).unwrap_or_default());
        if let Some(clipped) =
            result.content.truncate_middle(self.max_result_bytes, kept.as_deref())
        {
            result.content = clipped;
        }
        result
    }
}

impl fmt::Debug for Toolkit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolkit")
            .field("tools", &self.tools)
            .field("at_once", &self.max_concurrency)
            .field("single_action", &self.first_call_only)
            .field("dry_run", &self.is_dry_run)
            .field("clipped_at", &self.max_result_bytes)
            .finish_non_exhaustive()
    }
}
