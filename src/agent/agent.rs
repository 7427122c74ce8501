//! The agent: its settings, and the methods that start its runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;

use crate::agent::evidence::RequireEvidence;
use crate::agent::hook::Hook;
use crate::agent::resume::check_verdicts;
use crate::agent::run::RunArgs;
use crate::agent::settings::{AgentSettings, WorldFactory, offered_tools};
use crate::agent::{
    Budget, BudgetUsage, Input, Limits, ResumeVerdicts, Run, RunContext, RunStart, State,
    loop_body, subagent,
};
use crate::context::{Ageing, Compactor, Window};
use crate::env::{Ids, TimeLimit};
use crate::error::Error;
use crate::event::Event;
use crate::item::{History, PendingCall};
use crate::provider::Provider;
use crate::request::{Options, Request};
use crate::stream::Step;
use crate::tool::{Tool, ToolSource, Toolkit, Verdict};
use crate::trace::RemainingBudget;
use crate::trace::Trace;
use crate::turn::Turn;
use crate::world::World;

/// A model, its tools and the rules of its loop. Cheap to clone.
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
/// let spec = ToolSpec::new("roll", "Rolls a die", json!({ "type": "object" }));
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

    /// Starts a run on a new history. The run does nothing before its first poll.
    pub fn run(&self, input: impl Into<Input>) -> Run {
        self.run_from(History::new(&*self.0.ids), input)
    }

    /// Starts a run on a history, which is [settled](History::settled) first. With
    /// [`Input::default()`] as the input, nothing is appended to the history, and the model
    /// continues from its end.
    ///
    /// Two runs on clones of one history may give their calls the same ids, and therefore the same
    /// idempotency keys. Use [`fork`](History::fork) to create a copy of a history with a new id.
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

    /// Starts a run on a history with a body of your own in place of [`loop_body()`]. The journal,
    /// the handles, and the single `Finished` event are the same as with `loop_body`.
    ///
    /// The run must receive each event before the body is polled again. A body whose stream is
    /// returned as it is meets this requirement. If an adapter polls the body ahead, such as
    /// `ready_chunks` or a channel, the body sees an outdated history. If the run has not received
    /// a change to the history, such as a steered message, before the next request, the run ends
    /// with [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    ///
    /// To compile a copy of [`loop_body`], add the crates `async-stream` and `futures`.
    ///
    /// A body that yields `Stop`, or no step at all, ends the run as `stopped`. `StopWith` ends the
    /// run for the reason in the `end` field of the state. A `Finished` event that the body yields,
    /// such as that of another run, is dropped, since the run emits its own `Finished` event.
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
        let history = history.into().settled();
        Run::new(
            Arc::clone(&self.0),
            RunArgs { history, input: input.into(), resume_verdicts: None },
            body,
        )
    }

    /// Creates an empty trace with the limits of a run of this agent. These are the maximum number
    /// of requests and the limits of the agent's [`Budget`], except a pool. Attach the trace to a
    /// run with [`trace_to`](crate::EventStreamExt::trace_to).
    pub fn new_trace(&self) -> Trace {
        let trace = Trace::from_budgets(RemainingBudget {
            steps_remaining: Some(u64::from(self.0.limits.limits.max_turns)),
            ..self.0.limits.budget.remaining(&BudgetUsage::default())
        });
        trace.with_prices(self.0.limits.budget.prices().cloned().unwrap_or_default())
    }

    /// Returns the agent's own tools. The tools of its [sources](Self::with_tool_source) are not
    /// included, since only a run lists them.
    pub fn toolkit(&self) -> &Toolkit {
        &self.0.tools.toolkit
    }

    /// Resumes a run that ended as `pending`. The resumed run answers the open calls according to
    /// their verdicts, and then sends the next request to the model.
    ///
    /// `verdicts` has one verdict for each call without a result, together with the call itself, as
    /// in [`Outcome::pending`](crate::Outcome::pending). A verdict applies only to a call that
    /// equals the call that was passed with the verdict, including its arguments. If a hook
    /// rewrites or repairs the arguments of a call so that they differ from those in `verdicts`,
    /// the call is denied. Hooks are called again, since their decisions may have changed. A call
    /// that a hook denies is denied regardless of its verdict. The verdict on a call of an external
    /// tool must be [`Verdict::Output`] with the result, or a denial. A result of an external tool
    /// is accepted even if the agent no longer has the tool.
    ///
    /// A call whose sub-agent was suspended takes no verdict itself. Instead, pass the verdicts on
    /// the pending calls of the sub-agent, in any order, each call with its path. The sub-agent
    /// continues with the history that `history` [stores](History::nested_history) for the call.
    /// Hooks and limits are not applied again to the call that runs the sub-agent. The counters and
    /// budgets of the sub-agent and of the resumed run start from zero.
    ///
    /// Resume a stored history only once. If a history is resumed twice, its calls run twice, with
    /// the same [idempotency keys](crate::tool::ToolContext::idempotency_key). If a resumed run is
    /// dropped, its history has the results that were received, and only the calls without a result
    /// remain open.
    ///
    /// In a history that was built by hand, the last item of the turn needs a
    /// [`TurnInfo`](crate::item::TurnInfo), which marks the turn as complete
    /// ([`Item::with_turn_info`](crate::Item::with_turn_info)).
    ///
    /// [`run_from`](Self::run_from) answers the open calls of a history as interrupted instead of
    /// resuming them.
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
    /// let spec = ToolSpec::new("delete", "Deletes a file", json!({ "type": "object" }));
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
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error, before anything runs,
    /// in each of these cases:
    ///
    /// - No call is open.
    /// - A verdict is missing, duplicated or for a call that is not open.
    /// - A call of an external tool is approved, since the tool cannot run in this process.
    /// - The tool of an approved call, or the sub-agent of a suspended call, is missing.
    pub fn resume(
        &self,
        history: impl Into<History>,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<Run, Error> {
        self.resume_with_body(loop_body, history, verdicts)
    }

    /// Resumes a run like [`resume`](Self::resume), with a body of your own; see
    /// [`run_with_body`](Self::run_with_body).
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
        // Fails if the history has nothing that can be resumed.
        drop(self.toolkit().resume(&history)?);
        let resuming = Some(check_verdicts(&self.0, self.toolkit(), &history, verdicts)?);
        let begin = RunArgs { history, input: Input::default(), resume_verdicts: resuming };
        Ok(Run::new(Arc::clone(&self.0), begin, body))
    }

    /// Replaces the tools, and resets the settings of the toolkit to their defaults, such as at
    /// most 4 concurrent calls.
    ///
    /// If two tools have the same name, the run fails with
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) before a request is sent.
    pub fn with_tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.with_toolkit(Toolkit::new(tools))
    }

    /// Adds a tool to the agent. The name of the tool must differ from the names of the agent's
    /// other tools.
    pub fn with_tool(self, tool: Tool) -> Self {
        self.update_settings(|it| it.tools.toolkit = it.tools.toolkit.clone().with_tool(tool))
    }

    /// Replaces the tools and their settings with those of the toolkit.
    pub fn with_toolkit(self, kit: Toolkit) -> Self {
        self.update_settings(|it| {
            it.tools.toolkit = if it.tools.requires_rationale { kit.with_rationale() } else { kit }
        })
    }

    /// Adds a source of tools that may change during a run, such as an MCP server. The tools of all
    /// sources follow the agent's own tools, in the order in which the sources were added.
    ///
    /// A run lists the tools of all sources before each request, and before it runs resumed calls.
    /// A new tool list applies from the next request on. The tools that the model is offered and
    /// the tools that its calls run come from the same list. Hooks, approvals, the limits of the
    /// agent's [`Toolkit`], [`with_rationale`](Self::with_rationale) and dry runs apply to the
    /// tools of sources as well.
    ///
    /// - **The first listing of a run** must succeed. If the first listing fails, the run ends with
    ///   the source's error before it sends a request, and calls that were to be resumed are
    ///   answered without running. If two tools share a name, the run ends with an
    ///   [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error.
    /// - **A list that has changed** is reported to the model before the next request, as an
    ///   [`Appended`](crate::Event::Appended) event with the reason
    ///   [`Hook`](crate::event::AppendReason::Hook). The message names the tools that are new, no
    ///   longer available, described differently, or left out.
    /// - **A later listing that fails** does not change the tool list. A failure is reported to the
    ///   model and to the hooks' [`on_failure`](crate::agent::hook::Hook::on_failure), once until
    ///   the source can be listed again. If the name of a new tool is already taken, the tool is
    ///   left out, and this is reported to the model.
    /// - **A listing that takes longer than 30 seconds** fails;
    ///   [`with_tool_source_timeout`](Self::with_tool_source_timeout) sets another limit.
    ///
    /// A changed tool list changes the beginning of each request, since providers put the tools
    /// before the messages. After such a change, the provider's cached prefix is no longer used,
    /// and reasoning that a model has bound to the tools becomes invalid.
    /// [Anthropic's](crate::provider::Anthropic::without_drop_block) API drops reasoning that has
    /// become invalid if the request contains the option `drop_block`.
    ///
    /// A replay of a run lists no sources. If a durable engine continues a run from recorded tool
    /// lists, each call lists its source and looks up its tool when it runs. Such a call is
    /// answered with an error if the tool is gone or has changed. [`resume`](Self::resume) accepts
    /// verdicts on calls of tools that are not among the agent's own tools. The resumed run looks
    /// up each of these tools, and answers a call whose tool is gone with an error. A
    /// [session](crate::session::Session) does not run calls of source tools again after a crash,
    /// even if the tools are [idempotent](Tool::idempotent). [External](Tool::external) tools must
    /// be among the agent's own tools, since front ends look for external tools only there.
    ///
    /// See [`ToolSource`] for an example.
    pub fn with_tool_source(self, source: impl ToolSource + 'static) -> Self {
        self.update_settings(|it| Arc::make_mut(&mut it.tools.sources).push(Arc::new(source)))
    }

    /// Sets the timeout of one listing of a [source](Self::with_tool_source), which is 30 seconds
    /// by default.
    ///
    /// The timeout uses tokio's timer. Outside a tokio runtime, the default timeout does not apply.
    /// If a timeout was set explicitly, a listing outside a tokio runtime fails unless it is ready
    /// at its first poll.
    pub fn with_tool_source_timeout(self, timeout: Duration) -> Self {
        self.update_settings(|it| Arc::make_mut(&mut it.tools.sources).set_timeout(timeout))
    }

    /// Asks the model to state its rationale for each call in an argument `_why`, which the tool
    /// does not receive; see [`Tool::with_rationale`]. A [trace](crate::Trace) shows the rationale
    /// of each call.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use serde_json::json;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec};
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
    ///     json!({ "type": "object", "additionalProperties": false }),
    /// );
    /// let roll = Tool::raw(spec, |_args, _cx| async { 6 })?;
    /// let agent = Agent::new(model).with_tools([roll]).with_rationale();
    ///
    /// let trace = agent.new_trace();
    /// agent.run("Roll a die").trace_to(&trace).for_each(|_| async {}).await;
    /// assert!(trace.events()[0].to_string().contains("expected_outcome: \"a number\""));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_rationale(self) -> Self {
        self.update_settings(|it| {
            it.tools.requires_rationale = true;
            it.tools.toolkit = it.tools.toolkit.clone().with_rationale();
        })
    }

    /// Sets the stable part of the system prompt, which is the same in all runs.
    pub fn with_system(self, stable: impl Into<String>) -> Self {
        self.update_settings(|it| it.prompt.system.stable = stable.into())
    }

    /// Sets the volatile part of the system prompt, which may differ from run to run.
    pub fn with_volatile_system(self, volatile: impl Into<String>) -> Self {
        self.update_settings(|it| it.prompt.system.volatile = volatile.into())
    }

    /// Sets the request options: limits, sampling, reasoning, output format. If `options` [has no
    /// value](Options::or) for an option, the value that was set earlier is kept, for example by
    /// [`with_output`](Self::with_output).
    pub fn with_options(self, options: Options) -> Self {
        self.update_settings(|it| {
            it.prompt.options = options.or(std::mem::take(&mut it.prompt.options));
        })
    }

    /// Sets the maximum number of output tokens of a turn.
    pub fn with_max_output_tokens(self, tokens: u32) -> Self {
        self.update_settings(|it| it.prompt.options.max_output_tokens = Some(tokens))
    }

    /// Returns the maximum number of output tokens of a turn, if it is set.
    #[cfg(feature = "mcp")]
    pub(crate) fn max_output_tokens(&self) -> Option<u32> {
        self.0.prompt.options.max_output_tokens
    }

    /// Sets the temperature; see [`Options::temperature`].
    pub fn with_temperature(self, temperature: f32) -> Self {
        self.update_settings(|it| it.prompt.options.temperature = Some(temperature))
    }

    /// Sets the maximum number of requests of a run. The default is 20, or 80 for a sub-agent. If
    /// `max_turns` is 0, no request is sent. Requests that correct, continue or retry a turn count
    /// like any other request.
    pub fn with_max_turns(self, max_turns: u32) -> Self {
        self.update_settings(|it| {
            it.limits.limits.max_turns = max_turns;
            it.limits.is_max_turns_set = true;
        })
    }

    /// Sets all numeric limits, including the maximum number of requests.
    pub fn with_limits(self, limits: Limits) -> Self {
        self.update_settings(|it| {
            it.limits.limits = limits;
            it.limits.is_max_turns_set = true;
        })
    }

    /// Sets limits on the tokens, money, time and tool calls that a run may use; see [`Budget`].
    ///
    /// Limits are checked only when no paid work can be lost: after a response, after the results
    /// of its calls, and before a request. A response that exceeds a limit is kept, but the run
    /// starts no further calls or requests.
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
    /// let spec = ToolSpec::new("look", "Looks out of the window", json!({ "type": "object" }));
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

    /// Adds a hook, which is called after the existing hooks.
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

    /// Sets a label that distinguishes this agent from others that share a hook. The
    /// [`label`](crate::agent::StateFields::label) field of the state and the errors of hooks
    /// contain the label. A sub-agent without a label uses the name of its tool. The label of a
    /// sub-agent follows that of its parent: the sub-agent `reader` of `researcher` has the label
    /// `researcher/reader`.
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

    /// Sets the timeout of each hook call, which is 30 seconds by default. The timeout applies to
    /// deciding hooks and to the futures of observing hooks.
    ///
    /// The timeout uses tokio's timer. Outside a tokio runtime, the default timeout does not apply.
    /// If a timeout was set explicitly, a hook call outside a tokio runtime fails unless it is
    /// ready at its first poll.
    pub fn with_hook_timeout(self, timeout: Duration) -> Self {
        self.update_settings(|it| it.hooks.set_timeout(timeout))
    }

    /// Adds a fallback provider, which is used if the previous provider failed with an error that
    /// another provider might avoid. The open turn is then retracted, the run continues with the
    /// transition `fallback`, and the run uses the fallback until its end. The next run starts with
    /// the first provider again.
    ///
    /// The run switches to the next provider without a delay: only the last provider waits and
    /// retries. A pooled connection that the server has closed is replaced, and does not count as a
    /// failure.
    ///
    /// Alternatively, a [`Fallback`](crate::provider::Fallback) switches providers within one turn,
    /// starts with the first provider in each turn, and causes no transition.
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

    /// Sets the model's context window. Before each request whose size is close to the window, the
    /// [compactor](Self::with_compactor) shortens the history; [`Window`] defines the threshold. If
    /// no window is set, the compactor shortens a history only after a request did not fit the
    /// model.
    ///
    /// The threshold applies to the estimated number of tokens of a request with the whole history.
    /// Changes by a hook's [`transform_context`](crate::agent::hook::Hook::transform_context)
    /// affect the estimate only if a provider has reported the token count. Once a request exceeds
    /// the threshold, the compactor is called until the request is a quarter below the threshold,
    /// or until the compactor returns nothing. If the compaction does not help, a
    /// [failure](crate::agent::hook::Hook::on_failure) is reported to hooks, and the request is
    /// sent as it is. The next compaction is attempted when the request has grown by a twentieth of
    /// the window.
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

    /// Sets the compactor, which shortens a history that is close to the
    /// [window](Self::with_window) or did not fit the model. The default compactor is
    /// [`Truncator`](crate::context::Truncator). A history is compacted at most once because a
    /// request did not fit.
    pub fn with_compactor(self, compactor: impl Compactor + 'static) -> Self {
        self.update_settings(|it| it.context.compactor = Some(Arc::new(compactor)))
    }

    /// Shortens the reasoning and the arguments of calls in old turns as a conversation grows,
    /// regardless of the space left in the [window](Self::with_window); see [`Ageing`]. By default,
    /// old turns are not shortened.
    ///
    /// Old turns are shortened before a request, without calling a model, and the change is
    /// reported as a `rewritten` event. Shortening old turns does not count as the one compaction
    /// that is allowed after a request did not fit.
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

    /// Sets the timeout of the compactor, which is 120 seconds by default. If the compactor takes
    /// longer, its future is dropped, and the compaction fails.
    ///
    /// The timeout uses tokio's timer. Outside a tokio runtime, the default timeout does not apply.
    /// If a timeout was set explicitly, a compaction outside a tokio runtime fails unless it is
    /// ready at its first poll.
    pub fn with_compactor_timeout(self, timeout: Duration) -> Self {
        self.update_settings(|it| it.context.compactor_timeout = TimeLimit::Explicit(timeout))
    }

    /// Disables compaction, so that a request that does not fit the model ends the run as
    /// `context_window`.
    pub fn without_compactor(self) -> Self {
        self.update_settings(|it| it.context.compactor = None)
    }

    /// Makes the agent's runs wait for verdicts on calls that need approval, instead of ending as
    /// `pending`.
    ///
    /// While a run waits for a verdict, polling it returns `Poll::Pending`. The run continues when
    /// [`approve`](crate::RunHandle::approve) or [`deny`](crate::RunHandle::deny) is called on the
    /// run between two polls, or on a handle. The run does not wait for the results of external
    /// tools.
    ///
    /// A run waits only while a verdict can arrive, and ends as `pending` otherwise. Verdicts can
    /// come from the owner of the run if the run is polled as a stream, or from a
    /// [handle](crate::Run::handle) if its [`outcome`](crate::Run::outcome) is awaited. A sub-agent
    /// waits as long as its parent can receive a verdict.
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
    /// let spec = ToolSpec::new("delete", "Deletes a file", json!({ "type": "object" }));
    /// let delete = Tool::raw(spec, |_args, _cx| async { "deleted" })?.requires_approval();
    /// let mut run = Agent::new(model).with_tools([delete]).interactive().run("Delete my notes");
    /// while let Some(event) = run.next().await {
    ///     match event? {
    ///         Event::Tool(ToolEvent::ApprovalRequested(call)) => run.approve(&call)?,
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

    /// Sets the generator of ids. By default, ids are random.
    pub fn with_id_generator(self, ids: impl Ids + 'static) -> Self {
        self.update_settings(|it| it.ids = Arc::new(ids))
    }

    /// Requests the answer as JSON of type `T`, and validates the answer.
    ///
    /// The option [`Options::output`](crate::request::Options::output) is set to the JSON schema of
    /// `T`. An answer that [`Turn::parse`] cannot parse is rejected as described at
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

    /// Adds a check of the answer, which runs before a run completes.
    ///
    /// The check receives each turn in which the model stops on its own. The check is not called
    /// for turns with tool calls, nor for turns that are refused or cut off. A turn that is refused
    /// or cut off ends the run for that reason, since a validated answer is not continued. If the
    /// check returns `Err`, the answer is rejected, and the error text is sent to the model, which
    /// is asked again. At most [`with_max_corrections`](Self::with_max_corrections) answers in a
    /// row are rejected in this way; the next rejected answer ends the run as
    /// [`Malformed`](crate::event::EndReason::Malformed). The history keeps every rejected answer.
    ///
    /// Several checks run in the order in which they were added, until a check returns `Err`. A
    /// panic in a check ends the run with an error of kind [`Hook`](crate::ErrorKind::Hook).
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

    /// Sets how many unusable replies in a row are corrected, which is 2 by default. The next
    /// unusable reply ends the run as [`Malformed`](crate::event::EndReason::Malformed). Empty
    /// replies and turns in which no call could start count as unusable.
    pub fn with_max_corrections(self, corrections: u32) -> Self {
        self.update_settings(|it| it.limits.limits.max_corrections = corrections)
    }

    /// Lets a run complete only with evidence: a check that a tool has
    /// [recorded](crate::tool::ToolContext::record_evidence) and that passed after the last change.
    /// See [`EvidenceLog::verdict`](crate::agent::evidence::EvidenceLog::verdict) for the rules.
    ///
    /// If the model claims to be done without evidence, the claim is rejected once: the model
    /// receives a message that says what is missing and how to end. The second claim without
    /// evidence ends the run as [`Unproven`](crate::event::EndReason::Unproven). If no further
    /// request may be sent, the first claim without evidence already ends the run. After new input,
    /// steered or as a follow-up, a claim without evidence is rejected once more. If the model
    /// answers with `BLOCKED: ` and what is missing, the run ends as
    /// [`Blocked`](crate::event::EndReason::Blocked). [`Outcome::why`](crate::Outcome::why) of an
    /// unproven or blocked run says what is missing. [`Outcome::proof`](crate::Outcome::proof) is
    /// the check that proves a completed run.
    ///
    /// Evidence is checked after the [validations](Self::with_validation) of the answer and after
    /// the stop hooks, whose decisions take precedence. The answer of a blocked model is not
    /// validated. Only changes and checks of the run itself count. If the input of a run has no
    /// user message, the changes and checks in its history count as well.
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
    /// # let spec = |name: &str| ToolSpec::new(name, "", json!({ "type": "object" }));
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
            it.prompt.appended_instructions = policy.instructions().into();
            it.tools.read_only_tools = policy.read_only_tools();
            it.hooks.set_evidence_policy(Arc::new(policy));
        })
    }

    /// Creates a tool from the agent. Each call of the tool runs the agent on a new history with
    /// the call's `prompt` as its input, and returns the text of the agent's last turn.
    ///
    /// The sub-agent has its own prompt, tools, model and limits, and at most 80 turns by default.
    /// The parent's run yields the events of the sub-agent as [`Nested`](crate::Event::Nested)
    /// events, one by one as the consumer pulls them. Dropping or interrupting the parent drops the
    /// sub-agent. [`Journal::nested_journal`](crate::Journal::nested_journal) of the parent's
    /// journal returns the journal of the sub-agent, and
    /// [`RunHandle::sub_agent_handle`](crate::RunHandle::sub_agent_handle) returns its handle. If
    /// the sub-agent stopped early, the result of the call says so.
    ///
    /// If a call of the sub-agent waits for a verdict, the sub-agent is suspended. The parent's run
    /// also ends as `pending`, after its other calls have ended. The parent's
    /// [`pending`](crate::Outcome::pending) calls include the sub-agent's call with its path, and
    /// [`resume`](Self::resume) continues the sub-agent.
    ///
    /// Side effects that the sub-agent's calls record are immediately recorded for the parent's
    /// call as well. A call that was cut short without recording anything may have changed
    /// something, so a side effect `cut_short` with the name of the tool is recorded for it. The
    /// parent's result contains the sub-agent's evidence that is still valid at its end: checks
    /// that passed after the last change, and checks that failed and did not pass later.
    ///
    /// Several sub-agents run concurrently, each with its own tools: by default at most 4
    /// sub-agents with at most 4 concurrent calls each. Each sub-agent has its own budget, set by
    /// [`with_budget`](Self::with_budget). By default, sub-agents may be nested at most
    /// [8](crate::agent::Limits::max_depth) levels deep. To limit the total usage of a tree of
    /// agents, give all agents of the tree the same [`Pool`](crate::agent::Pool).
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
    /// This example approves a call of the sub-agent:
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
    /// let spec = ToolSpec::new("delete", "Deletes a file", json!({ "type": "object" }));
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

    /// Sets the function `open` that creates the [world](crate::world) of each run. The world
    /// performs, records or replays all external effects of the run. The run of a sub-agent uses
    /// the world of its own agent.
    ///
    /// The function `open` is called when a run is created, before the first poll of the run.
    pub fn with_world<W: World + 'static>(
        self,
        open: impl Fn(&Self, &RunStart<'_>) -> W + Send + Sync + 'static,
    ) -> Self {
        self.update_settings(|it| {
            it.world =
                Arc::new(move |settings, start| Arc::new(open(&Self(Arc::clone(settings)), start)));
        })
    }

    /// Returns a history with the same items and a new id.
    pub(crate) fn fork_history(&self, history: &History) -> History {
        history.fork(&*self.0.ids)
    }

    /// Returns the function that creates the world of each run.
    pub(crate) fn world_factory(&self) -> WorldFactory {
        Arc::clone(&self.0.world)
    }

    /// Creates the world of a run of this agent.
    pub(crate) fn open_world(&self, world: &WorldFactory, start: &RunStart<'_>) -> Arc<dyn World> {
        world(&self.0, start)
    }

    /// Builds the request for the next turn.
    pub(crate) fn build_request(&self, history: &History) -> Request {
        let tools = offered_tools(self.toolkit(), &*self.0.providers.provider);
        self.0.build_request(self.toolkit(), tools, history)
    }

    /// Returns a copy of the agent whose runs have no side effects. In such a run, no hooks are
    /// called except the evidence policy, time limits do not apply, and nothing is charged to a
    /// pool.
    pub(crate) fn without_side_effects(&self) -> Self {
        self.clone().update_settings(|it| {
            it.hooks = it.hooks.evidence_policy_only();
            it.limits.budget = it.limits.budget.clone().into_offline();
        })
    }

    /// Resumes the open calls of a history with verdicts that have already been checked.
    pub(crate) fn resume_with_checked_verdicts(
        &self,
        history: History,
        verdicts: ResumeVerdicts,
    ) -> Run {
        let begin = RunArgs { history, input: Input::default(), resume_verdicts: Some(verdicts) };
        Run::new(Arc::clone(&self.0), begin, loop_body)
    }

    /// Starts the replay of a run. `resuming` states whether the recorded run resumed pending
    /// calls, whose verdicts are unknown.
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

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("model", &self.0.providers.provider.model())
            .field("toolkit", self.toolkit())
            .field("limits", &self.0.limits.limits)
            .finish_non_exhaustive()
    }
}
