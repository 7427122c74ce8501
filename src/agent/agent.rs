//! Defines the agent, its settings, and the methods that start its runs.

use std::sync::Arc;

use futures::Stream;

use crate::agent::budget::BudgetUsage;
use crate::agent::evidence::RequireEvidence;
use crate::agent::hook::Hook;
use crate::agent::resume::check_verdicts;
use crate::agent::run::checked_input::check_input;
use crate::agent::run::run::RunArgs;
use crate::agent::settings::{AgentSettings, CompactorSetting, WorldFactory, offered_tools};
use crate::agent::{
    Budget, Input, Limits, ResumeVerdicts, Run, RunContext, RunObserver, RunStart, State,
    loop_body, subagent,
};
use crate::context::{Ageing, Compactor, Window};
use crate::env::Ids;
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::{History, PendingCall};
use crate::provider::Provider;
use crate::request::{Options, Request, System};
use crate::stream::Step;
use crate::tool::{Tool, ToolSource, Toolkit, Verdict};
use crate::trace::{RemainingBudget, RunInputs, Trace};
use crate::turn::Turn;
use crate::world::World;

/// A model, its tools, and the settings for the loop that calls the model and runs the tools.
/// `Agent` is cheap to clone.
///
/// ```
/// use serde_json::json;
/// use turnstream::provider::{Reply, Scripted};
/// use turnstream::tool::{Tool, ToolSpec};
/// use turnstream::{Agent, event::EndReason};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let model = Scripted::new([
///     Reply::new().call("roll", json!({})),
///     Reply::text("It is a six."),
/// ]);
/// let spec = ToolSpec::new("roll", "Rolls a die", json!({ "type": "object", "properties": {} }));
/// let roll = Tool::raw(spec, |_args, _cx| async { 6 })?;
///
/// let agent = Agent::new(model).with_tools([roll]);
/// let outcome = agent.run("Roll a die").outcome().await;
/// assert_eq!(outcome.reason, EndReason::Completed);
/// assert_eq!(outcome.text, "It is a six.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent(Arc<AgentSettings>);

impl Agent {
    /// Creates an agent that has no tools and sends at most 20 requests per run.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self(Arc::new(AgentSettings::new(Arc::new(provider))))
    }

    /// Starts a run with a new history. The run does nothing until it is first polled, and dropping
    /// it cancels its request and its tools.
    pub fn run(&self, input: impl Into<Input>) -> Run {
        self.run_from(History::new(&*self.0.ids), input)
    }

    /// Starts a run that continues a history. Before the run starts, the history is
    /// [settled](History::settled). If the input is [`Input::default()`], nothing is appended, and
    /// the model continues from the end of the history.
    ///
    /// If the provider [cannot send](crate::Provider::check_parts) an image or a file in the input,
    /// the run fails, and its outcome contains the history unchanged: pending calls in it can still
    /// be [resumed](Self::resume).
    ///
    /// If two runs start from clones of the same history, calls in one run may get the same ids,
    /// and therefore the same idempotency keys, as calls in the other. To avoid such duplicate ids,
    /// use [`fork`](History::fork) to create a copy of the history that has a new id.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Hello!", "See you."]));
    /// let first = agent.run("Hi").outcome().await;
    /// let second = agent.run_from(first.history, "Bye").outcome().await;
    /// assert_eq!(second.text, "See you.");
    /// assert_eq!((second.new_items().len(), second.history.len()), (2, 4));
    /// # }
    /// ```
    pub fn run_from(&self, history: impl Into<History>, input: impl Into<Input>) -> Run {
        self.run_with_body(loop_body, history, input)
    }

    /// Starts a run that uses a custom loop body instead of [`loop_body()`]. The journal, the
    /// handles and the single `Finished` event work exactly as they do with `loop_body`.
    ///
    /// The run must receive each event before the body is polled again. Therefore, return the
    /// body's stream directly from the closure, without an adapter. If an adapter such as
    /// `ready_chunks` or a channel polls the body ahead of the run, the body sees an outdated
    /// history. If the body prepares a request before the run has received a change to the history,
    /// such as a steered message, the run ends with an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error.
    ///
    /// To compile your own copy of [`loop_body`], add the crates `async-stream` and `futures` to
    /// your dependencies.
    ///
    /// If the body yields `Stop`, or no step at all, the run ends with the reason `stopped`. To end
    /// with another reason, the body calls [`State::with_end_reason`] and yields the state in a
    /// `StopWith`. If the body yields a `Finished` event, for example from another run, the run
    /// drops this event and emits its own `Finished` event instead.
    ///
    /// ```
    /// use turnstream::agent::{Agent, loop_body};
    /// use turnstream::provider::Scripted;
    /// use turnstream::{History, env::SystemIds};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Hello!"]));
    /// let mut iterations = 0;
    /// let run = agent.run_with_body(
    ///     move |cx, state| {
    ///         iterations += 1;
    ///         println!("iteration {iterations} begins with {} items", state.history.len());
    ///         loop_body(cx, state)
    ///     },
    ///     History::new(&SystemIds),
    ///     "Hi",
    /// );
    /// assert_eq!(run.outcome().await.text, "Hello!");
    /// # }
    /// ```
    pub fn run_with_body<B, St>(
        &self,
        body: B,
        history: impl Into<History>,
        input: impl Into<Input>,
    ) -> Run
    where
        B: FnMut(RunContext, State) -> St + Send + 'static,
        St: Stream<Item = Result<Step<Event, State>, Error>> + Send + 'static,
    {
        let begin = RunArgs { history: history.into(), input: input.into(), resume_verdicts: None };
        Run::new(Arc::clone(&self.0), begin, body)
    }

    /// Creates a trace that contains no steps, only the limits for this agent's runs: the maximum
    /// number of requests and the limits in the agent's [`Budget`]. The trace does not contain the
    /// limits of a pool. Attach the trace to a run with
    /// [`trace_to`](crate::EventStreamExt::trace_to).
    pub fn new_trace(&self) -> Trace {
        let trace = Trace::from_budgets(self.initial_budget());
        trace.with_prices(self.0.limits.budget.prices().cloned().unwrap_or_default())
    }

    /// Returns the inputs of an audited run of this agent: the goal, the names of its tools, and
    /// the limits. Add the repository, its snapshot and the memory before you pass the inputs to
    /// [`Trace::add_input`].
    pub fn run_inputs(&self, goal: impl Into<String>) -> RunInputs {
        let tools = self.0.tools.toolkit.specs().iter().map(|spec| spec.name.clone()).collect();
        RunInputs {
            goal: goal.into(),
            tools,
            budgets: self.initial_budget(),
            ..RunInputs::default()
        }
    }

    fn initial_budget(&self) -> RemainingBudget {
        RemainingBudget {
            steps_remaining: Some(u64::from(self.0.limits.limits.max_turns_or_default())),
            ..self.0.limits.budget.remaining(&BudgetUsage::default())
        }
    }

    /// Returns the agent's own tools. Tools from the agent's [sources](Self::with_tool_source) are
    /// not included, since they are listed only during a run.
    pub fn toolkit(&self) -> &Toolkit {
        &self.0.tools.toolkit
    }

    /// Resumes a run that ended with the reason `pending`. The resumed run answers the open calls
    /// according to their verdicts, and then sends the next request to the model.
    ///
    /// For each call without a result, `verdicts` must contain a pair: the call, as returned in
    /// [`Outcome::pending`](crate::Outcome::pending), and the verdict on it. The call names the
    /// request that the verdict answers by its [approval id](PendingCall::approval_id). A verdict
    /// applies only if the call that is about to run is identical to the call that is paired with
    /// the verdict, including the call's arguments and the definition of its tool. If a hook
    /// rewrites or repairs the arguments of a call so that they differ, or if a
    /// [source](Self::with_tool_source) lists another definition of its tool, the call does not
    /// run, and another verdict is requested. Hooks are called again, since their decisions may
    /// have changed. If a hook denies a call, the call's verdict is ignored. For a call to an
    /// external tool, the verdict must be either a denial or a [`Verdict::Output`] that contains
    /// the result. The result of an external tool is accepted even if the agent no longer has the
    /// tool.
    ///
    /// If a call started a sub-agent that was suspended, do not pass a verdict on the call itself.
    /// Instead, pass verdicts on the sub-agent's pending calls, in any order. Each of these calls
    /// must contain its [path](PendingCall::path). The sub-agent continues from its own history,
    /// which is [stored](History::nested_history) in `history`. Hooks and limits are not applied
    /// again to the call that runs the sub-agent. In both the sub-agent and the resumed run,
    /// counters and budgets start from zero.
    ///
    /// Resume a stored history only once. If a history is resumed twice, its calls run twice, with
    /// the same [idempotency keys](crate::tool::ToolContext::idempotency_key). If a resumed run is
    /// dropped, its history contains the results received before it was dropped, and only the calls
    /// without a result remain open.
    ///
    /// If you build a history by hand, use [`Item::with_turn_info`](crate::Item::with_turn_info) to
    /// add a [`TurnInfo`](crate::item::TurnInfo) to the last item of the turn that contains the
    /// open calls. The `TurnInfo` marks the turn as complete.
    ///
    /// Unlike this method, [`run_from`](Self::run_from) does not resume the open calls in a
    /// history, but gives each open call a result saying that the call was interrupted.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::event::EndReason;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec, Verdict};
    /// use turnstream::{Agent, History};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([
    ///     Reply::new().call("delete", json!({ "file": "notes" })),
    ///     Reply::text("It is gone."),
    /// ]);
    /// let schema = json!({ "type": "object", "properties": { "file": { "type": "string" } } });
    /// let spec = ToolSpec::new("delete", "Deletes a file", schema);
    /// let delete = Tool::raw(spec, |_args, _cx| async { "deleted" })?.requires_approval();
    /// let agent = Agent::new(model).with_tools([delete]);
    ///
    /// let outcome = agent.run("Delete my notes").outcome().await;
    /// assert_eq!(outcome.reason, EndReason::Pending);
    ///
    /// // The history can be stored until a person has decided, for any length of time.
    /// let verdicts = outcome.pending.into_iter().map(|call| (call, Verdict::Approve));
    /// let outcome = agent.resume(outcome.history, verdicts)?.outcome().await;
    /// assert_eq!(outcome.text, "It is gone.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns a [`Conflict`](crate::ErrorKind::Conflict) error, without running anything, if a
    /// verdict does not answer an open request: the call has been answered, is unknown, has another
    /// approval id or other arguments, or belongs to another history. Also returns a `Conflict`
    /// error if a call is approved whose tool has changed since the request. Such a call can still
    /// be denied.
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error, without running
    /// anything, in any of these cases:
    ///
    /// - No call is open, and no verdict was given.
    /// - A verdict is missing or duplicated.
    /// - A call to an external tool is approved, although the tool cannot run in this process.
    /// - The tool of an approved call, or the sub-agent of a suspended call, is missing.
    pub fn resume(
        &self,
        history: impl Into<History>,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<Run, Error> {
        self.resume_with_body(loop_body, history, verdicts)
    }

    /// Resumes a run in the same way as [`resume`](Self::resume), but uses a custom loop body; see
    /// [`run_with_body`](Self::run_with_body).
    ///
    /// Dropping the run drops the body, and with it the open request and the running tools.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`resume`](Self::resume).
    pub fn resume_with_body<B, St>(
        &self,
        body: B,
        history: impl Into<History>,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<Run, Error>
    where
        B: FnMut(RunContext, State) -> St + Send + 'static,
        St: Stream<Item = Result<Step<Event, State>, Error>> + Send + 'static,
    {
        let history = history.into();
        let verdicts: Vec<(PendingCall, Verdict)> = verdicts.into_iter().collect();
        if let (Some((call, _)), true) = (verdicts.first(), history.is_settled()) {
            let error = Error::new(ErrorKind::Conflict, "no call is waiting for a verdict");
            return Err(error.with_parameter(call.call_id.as_str()));
        }
        // This call fails if the history contains nothing to resume.
        drop(self.toolkit().resume(&history)?);
        let resuming = Some(check_verdicts(&self.0, self.toolkit(), &history, verdicts)?);
        let begin = RunArgs { history, input: Input::default(), resume_verdicts: resuming };
        Ok(Run::new(Arc::clone(&self.0), begin, body))
    }

    /// Adds tools to the agent, after those that it has.
    ///
    /// If two tools have the same name, the run fails with an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error before it sends a request.
    pub fn with_tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.update_settings(|it| it.tools.toolkit = it.tools.toolkit.clone().with_tools(tools))
    }

    /// Adds a tool to the agent. No other tool of the agent may have the same name.
    pub fn with_tool(self, tool: Tool) -> Self {
        self.with_tools([tool])
    }

    /// Replaces the agent's tools and their settings with those in the given toolkit.
    pub fn with_toolkit(self, toolkit: Toolkit) -> Self {
        self.update_settings(|it| it.tools.toolkit = toolkit)
    }

    /// Adds a tool source, such as an MCP server, whose tools may change during a run. In the tool
    /// list, tools from sources follow the agent's own tools, in the order in which the sources
    /// were added.
    ///
    /// A run lists the tools from all sources before each request, and before it runs resumed
    /// calls. A new tool list takes effect with the next request. Each call from the model runs a
    /// tool from the list that the model was offered. Hooks, approvals, and the settings of the
    /// agent's [`Toolkit`], such as its limits and dry runs, also apply to tools from sources.
    ///
    /// - **The first listing of a run** must succeed. If the first listing fails, the run ends with
    ///   the source's error before it sends a request, and each call that was to be resumed gets a
    ///   result instead of being run. If two tools share a name, the run ends with an
    ///   [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error.
    /// - **A changed list** is reported to the model before the next request, in an
    ///   [`Appended`](crate::Event::Appended) event with the reason
    ///   [`Hook`](crate::event::AppendReason::Hook). The message lists new tools, tools that are no
    ///   longer available, tools whose descriptions have changed, and tools that were left out.
    /// - **A [catalog](crate::tool::ToolList::catalog)** is reported to the model in the same way:
    ///   first with all names and descriptions, then with each change, in a message at the end of
    ///   the conversation. The messages in the history determine what the model knows. A later run
    ///   of the same session therefore reports only changes, and a list that a compaction has
    ///   removed is sent again. If a message would have more than 100 entries or 32 KiB of text, it
    ///   only says that there are too many entries to list.
    /// - **A later listing that fails** does not change the tool list. If several consecutive
    ///   listings of a source fail, only the first failure is reported to the model and to the
    ///   hooks' [`on_failure`](crate::agent::hook::Hook::on_failure) methods. If the name of a new
    ///   tool is already taken, the tool is left out, and the omission is reported to the model.
    /// - **A listing that takes longer than 30 seconds** fails. Use
    ///   [`Limits::tool_source_timeout`] to set a different limit.
    ///
    /// Providers put the tools before the messages, so a changed tool list changes the beginning of
    /// every later request. After a change, the provider can no longer use its cached prefix, and
    /// reasoning that depends on the earlier tools becomes invalid.
    /// [Anthropic's](crate::provider::Anthropic::without_drop_block) API drops invalid reasoning if
    /// the request contains the option `drop_block`.
    ///
    /// When a run is replayed, its tool sources are not asked for their tools. If a durable engine
    /// continues a run from recorded tool lists, the tool for each call is looked up in a new
    /// listing of its source when the call runs. If the tool no longer exists or has changed, the
    /// call gets an error result. [`resume`](Self::resume) accepts verdicts on calls to tools that
    /// are not among the agent's own tools. The resumed run looks up the tools for these calls in
    /// its sources. If a tool no longer exists, the call gets an error result. After a crash, a
    /// [session](crate::session::Session) does not rerun calls to tools from sources, even if the
    /// tools are [idempotent](Tool::idempotent). [External](Tool::external) tools must be among the
    /// agent's own tools, since front ends look for external tools only among the agent's own
    /// tools.
    ///
    /// See [`ToolSource`] for an example.
    pub fn with_tool_source(self, source: impl ToolSource + 'static) -> Self {
        self.update_settings(|it| Arc::make_mut(&mut it.tools.sources).push(Arc::new(source)))
    }

    /// Sets the system prompt. A text becomes the stable part, which is the same in all runs. To
    /// also set the volatile part, which may differ from run to run, pass a [`System`].
    ///
    /// ```
    /// use turnstream::request::System;
    /// use turnstream::{Agent, provider::Scripted};
    ///
    /// let model = Scripted::new(["It is Monday."]);
    /// let agent = Agent::new(model).with_system(System {
    ///     stable: "You answer questions about dates.".into(),
    ///     volatile: "Today is Monday, the 2nd of March.".into(),
    /// });
    /// # drop(agent);
    /// ```
    pub fn with_system(self, system: impl Into<System>) -> Self {
        self.update_settings(|it| it.prompt.set_system(system.into()))
    }

    /// Sets the request options, such as limits, sampling, reasoning and the output format. An
    /// option that [has no value](Options::or) in `options` keeps its current value; for example,
    /// the output format set by [`with_output`](Self::with_output) is kept.
    pub fn with_options(self, options: Options) -> Self {
        self.update_settings(|it| {
            it.prompt.options = options.or(std::mem::take(&mut it.prompt.options));
        })
    }

    /// Returns the options of the agent's requests, including the output format set by
    /// [`with_output`](Self::with_output). A hook may still change the options of a single request.
    pub fn options(&self) -> &Options {
        &self.0.prompt.options
    }

    /// Returns the limits of each run, such as the maximum number of turns. To change one of them,
    /// pass a changed copy to [`with_limits`](Self::with_limits).
    pub fn limits(&self) -> Limits {
        self.0.limits.limits
    }

    /// Sets all numeric limits, such as the maximum number of requests per run; see [`Limits`].
    pub fn with_limits(self, limits: Limits) -> Self {
        self.update_settings(|it| {
            it.limits.limits = limits;
            it.hooks.set_timeout(limits.hook_timeout);
            Arc::make_mut(&mut it.tools.sources).set_timeout(limits.tool_source_timeout);
        })
    }

    /// Limits the tokens, money, time and tool calls that a run may use; see [`Budget`].
    ///
    /// The limits are checked only when no paid work can be lost: after each response, after the
    /// results of a response's calls have arrived, and before each request. A response that exceeds
    /// a limit is kept, but the run starts no further calls or requests.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::agent::Budget;
    /// use turnstream::event::EndReason;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec};
    /// use turnstream::Agent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([
    ///     Reply::new().call("look", json!({})),
    ///     Reply::new().call("look", json!({})),
    ///     Reply::text("It rained when I looked."),
    /// ]);
    /// let schema = json!({ "type": "object", "properties": {} });
    /// let spec = ToolSpec::new("look", "Looks out of the window", schema);
    /// let look = Tool::raw(spec, |_args, _cx| async { "rain" })?;
    /// let budget = Budget::new().with_tool_calls(1).with_wrap_up();
    /// let agent = Agent::new(model).with_tools([look]).with_budget(budget);
    ///
    /// // The second call is not run, and the model answers with what it has.
    /// let outcome = agent.run("How is the weather?").outcome().await;
    /// assert_eq!(outcome.reason, EndReason::Budget);
    /// assert_eq!(outcome.text, "It rained when I looked.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_budget(self, budget: Budget) -> Self {
        self.update_settings(|it| it.limits.budget = budget)
    }

    /// Adds a hook. Hooks are called in the order in which they were added.
    ///
    /// ```
    /// use turnstream::agent::hook::{self, CallDecision};
    /// use turnstream::{Agent, provider::Scripted};
    ///
    /// let agent = Agent::new(Scripted::new(["Hi!"]))
    ///     .with_hook(hook::before_tool(|_state, call| async move {
    ///         match call.name.as_str() {
    ///             "delete" => CallDecision::RequireApproval,
    ///             _ => CallDecision::Allow,
    ///         }
    ///     }));
    /// # drop(agent);
    /// ```
    pub fn with_hook(self, hook: impl Hook + 'static) -> Self {
        self.update_settings(|it| it.hooks.push(Arc::new(hook)))
    }

    /// Sets a label that identifies this agent to hooks that several agents share. The label
    /// appears in the state's [`label`](crate::agent::StateFields::label) field and in errors from
    /// hooks. If a sub-agent has no label, the name of its tool is used as its label. A sub-agent's
    /// label is prefixed with its parent's label: for example, the sub-agent `reader` of the agent
    /// `researcher` has the label `researcher/reader`.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use serde_json::json;
    /// use turnstream::Agent;
    /// use turnstream::agent::hook;
    /// use turnstream::provider::{Reply, Scripted};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let lines = Arc::new(Mutex::new(Vec::new()));
    /// let log = {
    ///     let lines = Arc::clone(&lines);
    ///     Arc::new(hook::turn_started(move |state| {
    ///         lines.lock().unwrap().push(format!("{} asks {}", state.label, state.model_selection.model));
    ///         async {}
    ///     }))
    /// };
    /// let delegating = |tool: &str| {
    ///     Scripted::new([Reply::new().call(tool, json!({ "prompt": "go" })), "Done.".into()])
    /// };
    ///
    /// let reader = Agent::new(Scripted::new(["I have read it."])).with_hook(Arc::clone(&log));
    /// let researcher = Agent::new(delegating("reader"))
    ///     .with_hook(Arc::clone(&log))
    ///     .with_label("researcher")
    ///     .with_tools([reader.as_tool("reader", "Reads")?]);
    /// let lead = Agent::new(delegating("find_out"))
    ///     .with_hook(log)
    ///     .with_tools([researcher.as_tool("find_out", "Finds things out")?]);
    ///
    /// lead.run("Is it true?").outcome().await;
    /// assert_eq!(
    ///     lines.lock().unwrap()[..3],
    ///     [" asks scripted", "researcher asks scripted", "researcher/reader asks scripted"],
    /// );
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_label(self, label: impl Into<Arc<str>>) -> Self {
        self.update_settings(|it| it.label = label.into())
    }

    /// Adds a fallback provider. If the preceding provider fails with an error that another
    /// provider might avoid, the open turn is retracted, and the run continues with the `fallback`
    /// transition. After switching to a fallback provider, the run keeps using it until the run
    /// ends. The next run starts with the first provider again.
    ///
    /// The run switches to the next provider immediately: an error that another provider might
    /// avoid is retried only by the last provider. Replacing a pooled connection that the server
    /// has closed does not count as a failure.
    ///
    /// Use this method if the rest of a run should stay with the provider that works, so that the
    /// provider's cache and the model's reasoning remain usable, or if the change should be visible
    /// as an event. To instead start each turn with the first provider, to choose the errors that
    /// cause a fallback, or without an agent, use a [`Fallback`](crate::provider::Fallback)
    /// provider, which switches providers within a turn, and does not cause a transition.
    ///
    /// ```
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::{Agent, Error, ErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let busy = Error::new(ErrorKind::Overloaded, "no room at the moment");
    /// let first = Scripted::new([Reply::text("The capital").fail(busy)]);
    /// let agent = Agent::new(first).with_fallback(Scripted::new(["Oslo."]));
    /// let outcome = agent.run("The capital of Norway?").outcome().await;
    /// assert_eq!((outcome.text.as_str(), outcome.turns), ("Oslo.", 2));
    /// # }
    /// ```
    pub fn with_fallback(self, provider: impl Provider + 'static) -> Self {
        self.update_settings(|it| it.providers.fallbacks.push(Arc::new(provider)))
    }

    /// Sets the size of the model's context window. If a request is close to filling the window,
    /// the [compactor](Self::with_compactor) shortens the history before the request is sent. See
    /// [`Window`] for the exact threshold. If no window is set, the history is shortened only after
    /// a request has exceeded the model's context window.
    ///
    /// The threshold is compared with the estimated number of tokens in a request that contains the
    /// whole history. The estimate includes the changes that a hook's
    /// [`transform_context`](crate::agent::hook::Hook::transform_context) makes only if the
    /// estimate is based on a token count from a provider. Once a request exceeds the threshold,
    /// the compactor is called repeatedly until the request is at least 25% below the threshold, or
    /// until the compactor fails or returns no compaction. If compaction does not help, a
    /// [failure](crate::agent::hook::Hook::on_failure) is reported to hooks, and the request is
    /// sent unchanged. After a compaction that did not help, no further compaction is attempted
    /// until the request has grown by 5% of the window.
    ///
    /// ```
    /// use turnstream::context::{Compactor, Truncator, Summarizer, Window};
    /// use turnstream::{Agent, provider::Scripted};
    ///
    /// let (model, cheaper) = (Scripted::new(["Done."]), Scripted::new(["They talked."]));
    /// let agent = Agent::new(model)
    ///     .with_window(Window::new(200_000))
    ///     .with_compactor(Truncator::new().or_else(Summarizer::new(cheaper)));
    /// # drop(agent);
    /// ```
    pub fn with_window(self, window: Window) -> Self {
        self.update_settings(|it| it.context.window = Some(window))
    }

    /// Sets the compactor, which shortens the history if a request is close to filling the
    /// [window](Self::with_window) or has exceeded the model's context window. If a request exceeds
    /// the model's context window, the history is compacted at most once in response.
    ///
    /// If no compactor is set, a default [`Truncator`](crate::context::Truncator) shortens the
    /// history. If that is not enough, long tool results are truncated to 1,024 bytes in the same
    /// compaction, from the oldest result on, until the request is 25% below the threshold. If the
    /// request has exceeded the model's context window, results are truncated until the request is
    /// also half as long as before. The results of the newest turn are never truncated. A compactor
    /// that is set explicitly does not truncate results unless the compactor itself does so.
    pub fn with_compactor(self, compactor: impl Compactor + 'static) -> Self {
        self.update_settings(|it| {
            it.context.compactor = CompactorSetting::Custom(Arc::new(compactor));
        })
    }

    /// Shortens the reasoning and the call arguments in old turns as a conversation grows,
    /// regardless of the space left in the [window](Self::with_window); see [`Ageing`]. By default,
    /// old turns are not shortened.
    ///
    /// Old turns are shortened before a request, without calling a model, and the change is
    /// reported as a `rewritten` event. Once a request has exceeded the model's context window,
    /// only one compaction is allowed, not counting the shortening of old turns.
    ///
    /// ```
    /// use turnstream::context::Ageing;
    /// use turnstream::{Agent, provider::Scripted};
    ///
    /// // The latest ten to twenty turns are not shortened.
    /// let agent = Agent::new(Scripted::new(["Done."])).with_ageing(Ageing::after_turns(10));
    /// # drop(agent);
    /// ```
    pub fn with_ageing(self, ageing: Ageing) -> Self {
        self.update_settings(|it| it.context.ageing = Some(ageing))
    }

    /// Disables compaction. Without a compactor, a run ends with the reason `context_window` if a
    /// request exceeds the model's context window.
    pub fn without_compactor(self) -> Self {
        self.update_settings(|it| it.context.compactor = CompactorSetting::Disabled)
    }

    /// Makes the agent's runs wait for verdicts on calls that need approval, instead of ending with
    /// the reason `pending`.
    ///
    /// While a run waits for a verdict, polling it returns `Poll::Pending`. To continue the run,
    /// call [`approve`](crate::RunHandle::approve) or [`deny`](crate::RunHandle::deny), either on
    /// the run between two polls or on one of the run's handles. The run does not wait for the
    /// results of external tools.
    ///
    /// A run waits only as long as a verdict can still arrive; otherwise, it ends with the reason
    /// `pending`. If the run is polled as a stream, a verdict can come from the run's owner. If the
    /// run's [`outcome`](crate::Run::outcome) is awaited, a verdict can come only from a
    /// [handle](crate::Run::handle). A sub-agent waits for as long as its parent can receive a
    /// verdict.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use serde_json::json;
    /// use turnstream::event::ToolEvent;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec};
    /// use turnstream::{Agent, Event};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([
    ///     Reply::new().call("delete", json!({ "file": "notes" })),
    ///     Reply::text("It is gone."),
    /// ]);
    /// let schema = json!({ "type": "object", "properties": { "file": { "type": "string" } } });
    /// let spec = ToolSpec::new("delete", "Deletes a file", schema);
    /// let delete = Tool::raw(spec, |_args, _cx| async { "deleted" })?.requires_approval();
    /// let mut run = Agent::new(model).with_tools([delete]).interactive().run("Delete my notes");
    /// while let Some(event) = run.next().await {
    ///     match event? {
    ///         Event::Tool(ToolEvent::ApprovalRequested(call)) => run.approve(*call)?,
    ///         Event::Finished(outcome) => assert_eq!(outcome.text, "It is gone."),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn interactive(self) -> Self {
        self.update_settings(|it| it.tools.interactive = true)
    }

    /// Holds back a call that repeats an earlier call whose result is unknown, because the earlier
    /// call was interrupted, timed out or panicked. The call is not run: it receives a
    /// [`Denied`](crate::item::ResultKind::Denied) result, which asks the model to find out whether
    /// the earlier call took effect. Once another call has recorded
    /// [evidence](crate::tool::ToolContext::record_evidence), the call runs. The evidence is not
    /// interpreted: any evidence lifts the hold, also a failed check, or one about something else.
    ///
    /// Calls are compared by their tools and arguments. Tools that are
    /// [idempotent](crate::Tool::idempotent), and the [read-only
    /// tools](crate::agent::evidence::RequireEvidence::read_only_tools) of the evidence policy, are
    /// never held back. The earlier call must be in the history: if a compaction has removed it,
    /// the repeated call runs.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::Agent;
    /// use turnstream::item::{Item, ResultKind};
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let pay = || Reply::new().call("pay", json!({}));
    /// let model = Scripted::new([pay(), pay(), "I cannot tell whether it was paid.".into()]);
    /// let spec = ToolSpec::new("pay", "Pays", json!({ "type": "object", "properties": {} }));
    /// let tool = Tool::raw(spec, |_, _| async { panic!("the connection was lost") as &str })?;
    /// let outcome = Agent::new(model).with_tool(tool).hold_unclear_repeats().run("Pay").outcome().await;
    /// let results = outcome.new_items().iter().filter_map(Item::as_tool_result);
    /// let kinds: Vec<_> = results.map(|result| result.kind).collect();
    /// assert_eq!(kinds, [ResultKind::Panic, ResultKind::Denied]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_unclear_repeats(self) -> Self {
        self.update_settings(|it| it.tools.holds_unclear_repeats = true)
    }

    /// Registers a predicate under a name, to which a [grant](crate::item::Grant) may refer. The
    /// grant then allows a call only if the predicate returns `true` for the arguments that the
    /// call's tool receives. A predicate that is registered under the same name is replaced.
    ///
    /// A grant contains only the name, so a predicate should keep its meaning: a later version of
    /// the program in which the predicate accepts more arguments also lets a stored grant allow
    /// more. A call whose grant names an unknown predicate needs an approval. A sub-agent uses its
    /// own predicates.
    ///
    /// The predicate is called synchronously while the run is polled, and may be called several
    /// times for one call. A panic in the predicate ends the run, as in a hook.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use serde_json::json;
    /// use turnstream::item::{GrantDuration, GrantScope};
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec, Verdict};
    /// use turnstream::{Agent, Error};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let spec = ToolSpec::new("pay", "Pays an amount", json!({ "type": "object", "properties": {} }));
    /// let pay = Tool::raw(spec, |_args, _cx| async { "paid" })?.requires_approval();
    /// let model = Scripted::new([
    ///     Reply::new().call("pay", json!({ "amount": 5 })),
    ///     Reply::new().call("pay", json!({ "amount": 7 })),
    ///     Reply::new().call("pay", json!({ "amount": 700 })),
    ///     Reply::text("Done."),
    /// ]);
    /// let agent = Agent::new(model)
    ///     .with_tool(pay)
    ///     .with_grant_predicate("small", |args| args["amount"].as_u64().is_some_and(|it| it < 10))
    ///     .interactive();
    ///
    /// let mut asked = Vec::new();
    /// let mut run = agent.run("Pay my bills");
    /// while let Some(event) = run.next().await {
    ///     if let Some(call) = event?.approval_request() {
    ///         asked.push(call.arguments.clone());
    ///         let small = GrantScope::Predicate("small".to_owned());
    ///         let verdict = Verdict::approve_always(small, GrantDuration::Run);
    ///         run.handle().submit_verdict(call, verdict)?;
    ///     }
    /// }
    /// assert_eq!(asked, [r#"{"amount":5}"#, r#"{"amount":700}"#]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_grant_predicate(
        self,
        name: &str,
        predicate: impl Fn(&serde_json::Value) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.update_settings(|it| {
            Arc::make_mut(&mut it.tools.grant_predicates).insert(name, predicate);
        })
    }

    /// Sets the generator of the ids of histories, input receipts, approval requests and other
    /// parts of a run. By default, ids are random. A test can use
    /// [`CountingIds`](crate::env::CountingIds).
    pub fn with_ids(self, ids: impl Ids + 'static) -> Self {
        self.update_settings(|it| it.ids = Arc::new(ids))
    }

    /// Asks the model for a JSON answer that can be parsed into a `T`, and validates the answer.
    ///
    /// This method sets [`Options::output`](crate::request::Options::output) to the JSON schema for
    /// `T`. An answer that [`Turn::parse`] cannot parse is rejected as described in
    /// [`with_validation`](Self::with_validation). Use [`Outcome::parse`](crate::Outcome::parse) to
    /// get the value from a completed run.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct City {
    ///     name: String,
    ///     people: u32,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([
    ///     r#"{ "name": "Oslo", "people": "many" }"#,
    ///     r#"{ "name": "Oslo", "people": 717710 }"#,
    /// ]);
    /// let agent = Agent::new(model).with_output::<City>();
    /// let outcome = agent.run("The capital of Norway?").outcome().await.into_result()?;
    /// let city: City = outcome.parse()?;
    /// assert_eq!((city.name.as_str(), city.people, outcome.turns), ("Oslo", 717_710, 2));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "schemars")]
    pub fn with_output<T>(self) -> Self
    where
        T: schemars::JsonSchema + serde::de::DeserializeOwned + 'static,
    {
        let agent = self.update_settings(|it| {
            it.prompt.options.output = crate::request::Output::for_type::<T>();
        });
        agent.with_validation(|turn| turn.parse::<T>().map(drop).map_err(|error| error.to_string()))
    }

    /// Adds a check that must accept the model's answer before a run completes.
    ///
    /// The check is called for each turn in which the model stops on its own, but not for turns
    /// that contain other tool calls than a [stop action](crate::Tool::stop), are refused, or are
    /// cut off. If a turn with a stop action has no text of its own, the check receives the turn
    /// with the action's summary as its text, since this becomes the text of the outcome. A check
    /// that asks a model is a [`before_stop`](crate::agent::hook::before_stop) hook instead. A turn
    /// that is refused or cut off ends the run with the corresponding reason. A turn that is cut
    /// off is not continued, because validated answers are never continued. If the check returns
    /// `Err`, the answer is rejected, and the model is asked again, with the error text as
    /// feedback. [`Limits::max_corrections`] sets how many consecutive answers the model may be
    /// asked to correct; after the next rejected answer, the run ends with the reason
    /// [`Malformed`](crate::event::EndReason::Malformed), and
    /// [`Outcome::why`](crate::event::Outcome::why) is the error text. Calls that run between two
    /// rejected answers start the count again. Every rejected answer stays in the history.
    ///
    /// If several checks are added, [`with_output`](Self::with_output) among them, they run in the
    /// order in which they were added, until one returns `Err`. If a check panics, the run ends
    /// with an error of the kind [`Hook`](crate::ErrorKind::Hook).
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Oslo, of course.", "Oslo"]))
    ///     .with_validation(|turn| match turn.text().contains(' ') {
    ///         true => Err("it has more than one word"),
    ///         false => Ok(()),
    ///     });
    /// let outcome = agent.run("The capital of Norway, in one word?").outcome().await;
    /// assert_eq!((outcome.text.as_str(), outcome.turns), ("Oslo", 2));
    /// # }
    /// ```
    pub fn with_validation<E: Into<String>>(
        self,
        check: impl Fn(&Turn) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.update_settings(|it| it.validators.push(check))
    }

    /// Allows a run to complete only if there is evidence, that is, if a tool has
    /// [recorded](crate::tool::ToolContext::record_evidence) a check that passed after the last
    /// change. For the exact rules, see
    /// [`RequireEvidence::verdict`](crate::agent::evidence::RequireEvidence::verdict).
    ///
    /// If the model claims to be done but evidence is missing, the claim is rejected once: the
    /// model receives a message saying what is missing and how to end the run. After the second
    /// claim without evidence, the run ends with the reason
    /// [`Unproven`](crate::event::EndReason::Unproven). If no further request is allowed, the run
    /// ends after the first claim without evidence. Once new input has been delivered through
    /// steering or a follow-up, a claim without evidence may be rejected once more. If the model
    /// answers with `BLOCKED: ` followed by what is missing, the run ends with the reason
    /// [`Blocked`](crate::event::EndReason::Blocked). If a run ends with the reason `Unproven` or
    /// `Blocked`, [`Outcome::why`](crate::Outcome::why) says what is missing. If a run completes,
    /// [`Outcome::proof`](crate::Outcome::proof) contains the check that proves the claim.
    ///
    /// The [validations](Self::with_validation) and the stop hooks run before the evidence is
    /// checked, and their decisions take precedence. An answer in which the model reports that it
    /// is blocked is not validated. If the run's input contains a user message, only changes and
    /// checks from the run itself are considered; otherwise, the changes and checks recorded in the
    /// run's history are considered as well.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::agent::evidence::RequireEvidence;
    /// use turnstream::event::EndReason;
    /// use turnstream::item::Evidence;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolContext, ToolSpec};
    /// use turnstream::Agent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// # let schema = json!({ "type": "object", "properties": {} });
    /// # let spec = |name: &str| ToolSpec::new(name, "", schema.clone());
    /// let edit = Tool::raw(spec("edit"), |_, cx: ToolContext| async move {
    ///     cx.record_change("src/lib.rs");
    ///     "edited"
    /// })?;
    /// let test = Tool::raw(spec("test"), |_, cx: ToolContext| async move {
    ///     cx.record_evidence(Evidence::from_command("cargo test", 0));
    ///     "12 passed"
    /// })?;
    /// let model = Scripted::new([
    ///     Reply::new().call("edit", json!({})),
    ///     Reply::text("Done!"),
    /// // Rejected: nothing was checked.
    ///     Reply::new().call("test", json!({})),
    ///     Reply::text("Done: `cargo test` passes."),
    /// ]);
    /// let agent = Agent::new(model).with_tools([edit, test]).with_evidence(RequireEvidence::new());
    ///
    /// let outcome = agent.run("Mend the parser").outcome().await;
    /// assert_eq!(outcome.reason, EndReason::Completed);
    /// assert_eq!(outcome.proof.as_deref(), Some(&Evidence::from_command("cargo test", 0)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_evidence(self, policy: RequireEvidence) -> Self {
        self.update_settings(|it| {
            it.prompt.set_appended_instructions(policy.instructions.as_str().into());
            it.tools.read_only_tools = policy.read_only_tools.as_slice().into();
            it.hooks.set_evidence_policy(Arc::new(policy));
        })
    }

    /// Creates a tool that runs this agent as a sub-agent. Each call to the tool starts the
    /// sub-agent with a new history, using the call's `prompt` as the input. The result of the call
    /// is the text of the sub-agent's last turn.
    ///
    /// The sub-agent uses its own prompt, tools, model and limits, and sends at most 80 requests by
    /// default. The parent's run yields the sub-agent's events as [`Nested`](crate::Event::Nested)
    /// events, one at a time, as the consumer polls the run. Dropping or interrupting the parent's
    /// run drops the sub-agent. To get the sub-agent's journal, call
    /// [`Journal::nested_journal`](crate::Journal::nested_journal) on the parent's journal. To get
    /// the sub-agent's handle, call
    /// [`RunHandle::sub_agent_handle`](crate::RunHandle::sub_agent_handle). If the sub-agent stops
    /// early, the call's result says so.
    ///
    /// If one of the sub-agent's calls is waiting for a verdict, the sub-agent is suspended. Once
    /// the other calls in the parent's run have ended, the parent's run ends with the reason
    /// `pending`. The [`pending`](crate::Outcome::pending) calls in the outcome of the parent's run
    /// include the sub-agent's call, together with the path to that call. [`resume`](Self::resume)
    /// continues the sub-agent.
    ///
    /// Side effects that the sub-agent's calls record are immediately recorded for the parent's
    /// call as well. A call that is cut short may have changed something without recording it. If
    /// it has recorded nothing, the side effect `cut_short` is recorded with the name of its tool.
    /// The result of the parent's call contains the evidence that is still valid when the sub-agent
    /// ends: checks that passed after the last change, and failed checks that did not pass later.
    ///
    /// Several sub-agents can run concurrently, each with its own tools. By default, at most 4
    /// sub-agents run concurrently, each with at most 4 concurrent calls. Each sub-agent has its
    /// own budget, set by [`with_budget`](Self::with_budget). By default, sub-agents may be nested
    /// up to [8](crate::agent::Limits::max_depth) levels deep. To limit the total usage of a tree
    /// of agents, give all agents in the tree the same [`Pool`](crate::agent::Pool).
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::Agent;
    /// use turnstream::provider::{Reply, Scripted};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let researcher = Agent::new(Scripted::new(["Oslo has 717,710 people."]));
    /// let boss = Scripted::new([
    ///     Reply::new().call("research", json!({ "prompt": "How many people live in Oslo?" })),
    ///     Reply::text("About 700,000."),
    /// ]);
    /// let tool = researcher.as_tool("research", "Finds things out")?;
    /// let outcome = Agent::new(boss).with_tools([tool]).run("Oslo?").outcome().await;
    /// assert_eq!(outcome.text, "About 700,000.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The following example approves a call that a sub-agent made:
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::Agent;
    /// use turnstream::event::EndReason;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec, Verdict};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let schema = json!({ "type": "object", "properties": { "file": { "type": "string" } } });
    /// let spec = ToolSpec::new("delete", "Deletes a file", schema);
    /// let delete = Tool::raw(spec, |_args, _cx| async { "deleted" })?.requires_approval();
    /// let deletes = Reply::new().call_raw("d1", "delete", r#"{"file":"notes"}"#);
    /// let cleaner = Agent::new(Scripted::new([deletes, "It is gone.".into()])).with_tools([delete]);
    ///
    /// let delegates = Reply::new().call_raw("c1", "clean", r#"{"prompt":"Delete my notes"}"#);
    /// let agent = Agent::new(Scripted::new([delegates, "All clean.".into()]))
    ///     .with_tools([cleaner.as_tool("clean", "Cleans up")?]);
    ///
    /// let outcome = agent.run("Clean up").outcome().await;
    /// assert_eq!(outcome.reason, EndReason::Pending);
    /// let call = outcome.pending[0].clone();
    /// assert_eq!((&call.path[..], &*call.call_id), (&["c1".to_owned()][..], "d1"));
    ///
    /// // The history can be stored; the sub-agent continues where it stopped.
    /// let outcome = agent.resume(outcome.history, [(call, Verdict::Approve)])?.outcome().await;
    /// assert_eq!(outcome.text, "All clean.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if `name` is not a
    /// tool name that all providers accept.
    pub fn as_tool(&self, name: &str, description: &str) -> Result<Tool, Error> {
        subagent::sub_agent_tool(Arc::clone(&self.0), name, description)
    }

    /// Sets the function that creates each run's [world](crate::world), which performs, records or
    /// replays all of the run's external effects. `open` is called when a run is created, before
    /// the run is first polled. The runs of a sub-agent use the world of the
    /// sub-agent, which is set with the same method.
    pub fn with_world<W: World + 'static>(
        self,
        open: impl Fn(&Self, &RunStart<'_>) -> W + Send + Sync + 'static,
    ) -> Self {
        self.update_settings(|it| {
            it.world =
                Arc::new(move |settings, start| Arc::new(open(&Self(Arc::clone(settings)), start)));
        })
    }

    /// Sets the observer of this agent's runs, which replaces the observer that is set. By default,
    /// runs are not observed, unless a hub [observes](crate::hub::HubBuilder::with_run_observer)
    /// them. The observer is also asked about the runs in which this agent is a sub-agent.
    pub fn with_run_observer(self, observer: impl RunObserver + 'static) -> Self {
        self.update_settings(|it| it.observer = Some(Arc::new(observer)))
    }

    /// Returns a history with the same items and a new id.
    pub(crate) fn fork_history(&self, history: &History) -> History {
        history.fork(&*self.0.ids)
    }

    /// Returns the error with which a run with this input would end, if the provider cannot send an
    /// image or a file in the input.
    pub(crate) fn check_input(&self, input: &Input) -> Result<(), Error> {
        check_input(&self.0, &input.0)
    }

    /// Returns the function that creates the world for each run.
    pub(crate) fn world_factory(&self) -> WorldFactory {
        Arc::clone(&self.0.world)
    }

    /// Creates the world for one of this agent's runs.
    pub(crate) fn open_world(&self, world: &WorldFactory, start: &RunStart<'_>) -> Arc<dyn World> {
        world(&self.0, start)
    }

    /// Builds the request for the next turn.
    pub(crate) fn build_request(&self, history: &History) -> Request {
        let tools = offered_tools(self.toolkit(), &*self.0.providers.provider);
        self.0.build_request(self.toolkit(), tools, history)
    }

    /// Returns a copy of the agent whose runs have no side effects. The copy's runs call no hooks
    /// except the evidence policy, are not observed, ignore time limits, and charge nothing to a
    /// pool.
    pub(crate) fn without_side_effects(&self) -> Self {
        self.clone().update_settings(|it| {
            it.hooks = it.hooks.evidence_policy_only();
            it.observer = None;
            it.limits.budget = it.limits.budget.clone().into_offline();
        })
    }

    /// Resumes a history's open calls, using verdicts that have already been checked.
    pub(crate) fn resume_with_checked_verdicts(
        &self,
        history: History,
        verdicts: ResumeVerdicts,
    ) -> Run {
        let begin = RunArgs { history, input: Input::default(), resume_verdicts: Some(verdicts) };
        Run::new(Arc::clone(&self.0), begin, loop_body)
    }

    /// Starts replaying a run. `resuming` indicates whether the recorded run resumed pending calls.
    /// A replay does not know the verdicts on the resumed calls.
    pub(crate) fn replay_run<B, St>(
        &self,
        body: B,
        history: History,
        input: Input,
        resuming: bool,
    ) -> Run
    where
        B: FnMut(RunContext, State) -> St + Send + 'static,
        St: Stream<Item = Result<Step<Event, State>, Error>> + Send + 'static,
    {
        let resuming = resuming.then(ResumeVerdicts::default);
        Run::new(Arc::clone(&self.0), RunArgs { history, input, resume_verdicts: resuming }, body)
    }

    fn update_settings(mut self, set: impl FnOnce(&mut AgentSettings)) -> Self {
        set(Arc::make_mut(&mut self.0));
        self
    }
}

impl_debug!(
    Agent(it),
    model = it.0.providers.provider.model(),
    toolkit = it.toolkit(),
    limits = it.0.limits.limits
);
