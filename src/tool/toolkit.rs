//! The tools that an agent has.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::env::TimeLimit;
use crate::error::catch_panic;
use crate::http::Timeouts;
use crate::item::{ToolCall, ToolResult};
use crate::request::ToolSpec;
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
            max_concurrency: DEFAULT_MAX_CONCURRENCY,
            first_call_only: false,
            is_dry_run: false,
            adds_rationale: false,
            timeout: TimeLimit::Default(DEFAULT_TIMEOUT),
            max_result_bytes: DEFAULT_MAX_RESULT_BYTES,
            on_truncate: None,
        }
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
        let is_offered = |tool: &&Tool| specs.iter().any(|spec| spec.name == tool.name());
        self.rebuild_with_tools(self.tools.iter().filter(is_offered).cloned())
    }

    /// The same kit with these tools after its own.
    pub(crate) fn merged_with(&self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.rebuild_with_tools(self.tools.iter().cloned().chain(tools))
    }

    /// The tool of this name, the first of several.
    pub fn get(&self, name: &str) -> Option<&Tool> {
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

    /// What the model is told of the tools, in order.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    pub(super) fn available_tools_message(&self) -> String {
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
