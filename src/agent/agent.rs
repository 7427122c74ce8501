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
    /// Creates an agent without tools that sends at most 20 requests per run.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self(Arc::new(AgentSettings::new(Arc::new(provider))))
    }

    /// Starts a run on a new history. Nothing happens before the first poll.
    pub fn run(&self, input: impl Into<Input>) -> Run {
        self.run_from(History::new(&*self.0.ids), input)
    }

    /// Starts a run on a history, which is [settled](History::settled) first. With
    /// [`Input::default()`] nothing is appended, and the model continues the history as it is.
    ///
    /// Two runs on clones of one history may give their calls the same ids, and so their tools the
    /// same idempotency keys: use [`fork`](History::fork) to give a copy of the history an id of
    /// its own.
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

    /// Starts a run on a history with a body of your own in place of [`loop_body()`]. Everything
    /// else is the same: the journal, the handles, and the single `Finished` event.
    ///
    /// The run must receive each event before the body is polled again. This is the case if the
    /// stream of the body is returned as it is. An adapter that polls ahead, such as `ready_chunks`
    /// or a channel, gives the body an outdated history. If a change of the history, such as a
    /// steered message, has not reached the run before the next request, the run ends with
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    ///
    /// A copy of [`loop_body`] needs the crates `async-stream` and `futures`.
    ///
    /// A body that yields `Stop`, or no step at all, ends the run as `stopped`. `StopWith` ends it
    /// for the reason in the `end` field of the state. A `Finished` event that the body yields,
    /// such as that of another run, is dropped: the run emits its own.
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

    /// Creates an empty trace with the limits of a run of this agent: the number of requests and
    /// the limits of its [`Budget`], except a pool. Attach it to a run with
    /// [`trace_to`](crate::EventStreamExt::trace_to).
    pub fn new_trace(&self) -> Trace {
        let trace = Trace::from_budgets(RemainingBudget {
            steps_remaining: Some(u64::from(self.0.limits.limits.max_turns)),
            ..self.0.limits.budget.remaining(&BudgetUsage::default())
        });
        trace.with_prices(self.0.limits.budget.prices().cloned().unwrap_or_default())
    }

    /// Returns the agent's own tools. Those of its [sources](Self::with_tool_source) are known only
    /// to a run.
    pub fn toolkit(&self) -> &Toolkit {
        &self.0.tools.toolkit
    }

    /// Resumes a run that ended as `pending`: answers the open calls according to their verdicts,
    /// and then asks the model.
    ///
    /// `verdicts` has one verdict for each call without a result, together with the call itself, as
    /// in [`Outcome::pending`](crate::Outcome::pending). A verdict applies only to exactly this
    /// call, including its arguments. If a hook rewrites or repairs the arguments to something
    /// else, the call is denied. Hooks are called again, since their decisions may have changed; a
    /// call that a hook denies stays denied. An external tool takes [`Verdict::Output`], its
    /// result, or a denial. Such a result is accepted even if the agent no longer has the tool.
    ///
    /// A call whose sub-agent was suspended takes no verdict itself. Pass the verdicts on the calls
    /// that the sub-agent waits for, in any order, each with the path to it. The sub-agent
    /// continues with the history that `history` [stores](History::nested_history) for the call,
    /// and neither hooks nor limits are applied to the call again. The counters and budgets of the
    /// sub-agent start from zero, like those of the run itself.
    ///
    /// Resume a stored history only once: doing it twice runs the calls twice, with the same
    /// [idempotency keys](crate::tool::ToolContext::idempotency_key). If a resumed run is dropped,
    /// its history has the results that were received, and only the other calls are open.
    ///
    /// In a history that was built by hand, the last item of the turn needs a
    /// [`TurnInfo`](crate::item::TurnInfo), which marks the turn as complete
    /// ([`Item::with_turn_info`](crate::Item::with_turn_info)).
    ///
    /// [`run_from`](Self::run_from) on the same history answers the open calls as interrupted
    /// instead.
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
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), before anything runs, if no call is
    /// open; if a verdict is missing, duplicated or for a call that is not open; if an external
    /// call is approved, since it cannot run here; or if the tool of an approved call, or the
    /// sub-agent of a suspended one, is missing.
    pub fn resume(
        &self,
        history: impl Into<History>,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<Run, Error> {
        self.resume_with_body(loop_body, history, verdicts)
    }

    /// Like [`resume`](Self::resume), with a body of your own; see
    /// [`run_with_body`](Self::run_with_body).
    ///
    /// # Errors
    ///
    /// The same as for [`resume`](Self::resume).
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

    /// Replaces the tools and the settings of the toolkit: at most 4 calls run concurrently.
    ///
    /// If two tools have the same name, the run fails with
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) before a request is sent.
    pub fn with_tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.with_toolkit(Toolkit::new(tools))
    }

    /// Adds a tool to those of the agent. Its name must differ from theirs.
    pub fn with_tool(self, tool: Tool) -> Self {
        self.update_settings(|it| it.tools.toolkit = it.tools.toolkit.clone().with_tool(tool))
    }

    /// Replaces the tools with a toolkit, including its settings.
    pub fn with_toolkit(self, kit: Toolkit) -> Self {
        self.update_settings(|it| {
            it.tools.toolkit = if it.tools.requires_rationale { kit.with_rationale() } else { kit }
        })
    }

    /// Adds a source of tools that may change during a run, such as an MCP server. With several
    /// sources, their tools follow the agent's own tools, in the order in which the sources were
    /// added.
    ///
    /// A run lists the tools of all sources before each request, and before it runs resumed calls.
    /// A list applies from the next request on: the tools that the model is offered and the tools
    /// that its calls run come from the same list. All rules of the agent apply to these tools as
    /// well: hooks and approvals, the limits of its [`Toolkit`],
    /// [`with_rationale`](Self::with_rationale), dry runs.
    ///
    /// - **The first listing of a run** must succeed. Otherwise the run ends with the source's
    ///   error before it sends a request, and calls that it was to resume are answered without
    ///   running. A name that two tools share is an
    ///   [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    /// - **A list that has changed** is reported to the model before the next request, as an
    ///   [`Appended`](crate::Event::Appended) event with the reason
    ///   [`Hook`](crate::event::AppendReason::Hook). It names the tools that are new, no longer
    ///   available, described differently, or left out.
    /// - **A later listing that fails** changes nothing: the last list stays in effect. The failure
    ///   is reported once, until the source can be listed again, to the model and to the hooks'
    ///   [`on_failure`](crate::agent::hook::Hook::on_failure). A new tool whose name is already
    ///   taken is left out, which is also reported.
    /// - **A listing that takes longer than 30 seconds** fails;
    ///   [`with_tool_source_timeout`](Self::with_tool_source_timeout) sets another limit.
    ///
    /// A changed list changes the beginning of each request, since providers put the tools before
    /// the messages. The provider's cached prefix is then no longer used, and reasoning that a
    /// model has bound to the tools becomes invalid.
    /// [Anthropic's](crate::provider::Anthropic::without_drop_block) API drops such reasoning if
    /// the request asks for it (`drop_block`).
    ///
    /// A replay of a run lists nothing. If a durable engine continues a run from recorded lists, a
    /// call looks up its tool when it runs: it lists the source first, and is answered with an
    /// error if the tool is gone or has changed. [`resume`](Self::resume) accepts verdicts on calls
    /// of tools that the agent does not have itself; the run looks up the tool, and answers a call
    /// whose tool is gone with an error. A [session](crate::session::Session) does not run calls of
    /// these tools again after a crash, even if they are [idempotent](Tool::idempotent).
    /// [External](Tool::external) tools must be among the agent's own tools, since front ends look
    /// for them there.
    ///
    /// [`ToolSource`] has an example.
    pub fn with_tool_source(self, source: impl ToolSource + 'static) -> Self {
        self.update_settings(|it| Arc::make_mut(&mut it.tools.sources).push(Arc::new(source)))
    }

    /// Sets the timeout of one listing of a [source](Self::with_tool_source); 30 seconds by
    /// default.
    ///
    /// The timer is tokio's. Outside a tokio runtime, the default timeout does not apply, and with
    /// an explicit timeout a listing that is not ready at its first poll fails.
    pub fn with_tool_source_timeout(self, timeout: Duration) -> Self {
        self.update_settings(|it| Arc::make_mut(&mut it.tools.sources).set_timeout(timeout))
    }

    /// Asks the model to state why it calls a tool, in an argument `_why` that the tool does not
    /// receive; see [`Tool::with_rationale`]. A [trace](crate::Trace) shows it.
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

    /// Sets the request options: limits, sampling, reasoning, output format. Options that were set
    /// earlier, for example by [`with_output`](Self::with_output), are kept where `options` [has no
    /// value](Options::or).
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

    /// Sets the maximum number of requests of a run: 20 by default, 80 for a sub-agent. With 0, no
    /// request is sent. Requests that correct, continue or retry a turn count like any other.
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

    /// Limits what a run may spend: tokens, money, time, tool calls; see [`Budget`].
    ///
    /// Limits are checked at points where no paid work is lost: after a response, after the results
    /// of its calls, and before a request. A response that crosses a limit is kept; the run only
    /// starts nothing new.
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

    /// Adds a hook after the existing ones.
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

    /// Sets a label that distinguishes this agent from others that share a hook. Hooks find it in
    /// the state as [`label`](crate::agent::StateFields::label), and errors of hooks contain it. A
    /// sub-agent without a label uses the name of its tool. Labels are joined along the tree: the
    /// sub-agent `reader` of `researcher` has the label `researcher/reader`.
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

    /// Sets the timeout of each call of a hook; 30 seconds by default. It applies to decisions and
    /// to the futures of observing hooks.
    ///
    /// The timer is tokio's. Outside a tokio runtime, the default timeout does not apply, and with
    /// an explicit timeout a hook that is not ready at its first poll fails.
    pub fn with_hook_timeout(self, timeout: Duration) -> Self {
        self.update_settings(|it| it.hooks.set_timeout(timeout))
    }

    /// Adds a fallback: a provider that is used after the previous ones failed with an error that
    /// another provider might avoid. The open turn is retracted, the run continues with the
    /// transition `fallback`, and it uses the new provider until it ends. The next run starts with
    /// the first provider again.
    ///
    /// The run switches to the next provider without a delay: only the last one waits and retries.
    /// A pooled connection that the server has closed is replaced, and does not count as a failure.
    ///
    /// [`Fallback`](crate::provider::Fallback) does the same within one turn, starts with the first
    /// provider in each turn, and causes no transition.
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

    /// Sets the model's context window. Before a request that is close to the window, the
    /// [compactor](Self::with_compactor) shortens the history, each time this happens; [`Window`]
    /// defines the threshold. Without a window, a history is shortened only after a request did not
    /// fit.
    ///
    /// The threshold applies to the estimated tokens of a request with the whole history. If a
    /// hook's [`transform_context`](crate::agent::hook::Hook::transform_context) changes the
    /// request, this is included only where a provider has reported the token count. Once a request
    /// exceeds the threshold, the compactor is called until the request is a quarter below it, or
    /// until it returns nothing. If the compaction does not help, it is reported to hooks as a
    /// [failure](crate::agent::hook::Hook::on_failure), the request is sent as it is, and the next
    /// attempt is made when the request has grown by a twentieth of the window.
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
    /// [window](Self::with_window) or did not fit the model;
    /// [`Truncator`](crate::context::Truncator) by default. A request that did not fit is compacted
    /// at most once per history.
    pub fn with_compactor(self, compactor: impl Compactor + 'static) -> Self {
        self.update_settings(|it| it.context.compactor = Some(Arc::new(compactor)))
    }

    /// Shortens the reasoning and the arguments of calls in old turns as a conversation grows,
    /// regardless of the space left in the [window](Self::with_window); see [`Ageing`]. Off by
    /// default.
    ///
    /// This happens before a request, does not call a model, and is reported as a `rewritten`
    /// event. It does not count as the one compaction that is allowed after a request that did not
    /// fit.
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

    /// Sets the timeout of the compactor; 120 seconds by default. A compactor that takes longer is
    /// dropped, and the compaction fails.
    ///
    /// The timer is tokio's. Outside a tokio runtime, the default timeout does not apply, and with
    /// an explicit timeout a compactor that is not ready at its first poll fails.
    pub fn with_compactor_timeout(self, timeout: Duration) -> Self {
        self.update_settings(|it| it.context.compactor_timeout = TimeLimit::Explicit(timeout))
    }

    /// Disables compaction: a request that does not fit the model ends the run as `context_window`.
    pub fn without_compactor(self) -> Self {
        self.update_settings(|it| it.context.compactor = None)
    }

    /// Waits for verdicts on calls that need approval, instead of ending the run as `pending`.
    ///
    /// While it waits, polling the run returns `Poll::Pending`, until
    /// [`approve`](crate::RunHandle::approve) or [`deny`](crate::RunHandle::deny) is called on the
    /// run between two polls, or on a handle. The run does not wait for the results of external
    /// tools.
    ///
    /// The run waits only while a verdict can arrive: from its owner if it is polled as a stream,
    /// or from a [handle](crate::Run::handle) if its [`outcome`](crate::Run::outcome) is awaited. A
    /// sub-agent waits as long as a verdict can reach its parent. Otherwise the run ends as
    /// `pending`.
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

    /// Sets the generator of ids; random ids by default.
    pub fn with_id_generator(self, ids: impl Ids + 'static) -> Self {
        self.update_settings(|it| it.ids = Arc::new(ids))
    }

    /// Requests an answer of type `T` as JSON, and validates that it is one.
    ///
    /// This sets [`Options::output`](crate::request::Options::output) to the JSON schema of `T`. An
    /// answer that [`Turn::parse`] cannot parse is rejected as described at
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
    /// The check receives each turn in which the model stops on its own. It is not called for turns
    /// with tool calls, nor for turns that are refused or cut off: these end the run for that
    /// reason, since a validated answer is not continued. If the check returns `Err`, the answer is
    /// rejected: the error text is sent to the model, which is asked again, at most as many times
    /// as [`with_max_corrections`](Self::with_max_corrections) allows. After that, the run ends as
    /// [`Malformed`](crate::event::EndReason::Malformed). The history keeps every rejected answer.
    ///
    /// Several checks run in the order in which they were added, up to the first `Err`. A panic in
    /// a check ends the run with an error of kind [`Hook`](crate::ErrorKind::Hook).
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

    /// Sets how many unusable replies in a row are corrected, 2 by default; the next one ends the
    /// run as [`Malformed`](crate::event::EndReason::Malformed). Empty replies and turns in which
    /// no call could start count as unusable.
    pub fn with_max_corrections(self, corrections: u32) -> Self {
        self.update_settings(|it| it.limits.limits.max_corrections = corrections)
    }

    /// Lets a run complete only with evidence: a check that a tool has
    /// [recorded](crate::tool::ToolContext::record_evidence) and that passed after the last change.
    /// [`EvidenceLog::verdict`](crate::agent::evidence::EvidenceLog::verdict) has the rules.
    ///
    /// If the model claims to be done without evidence, the claim is rejected once: the model
    /// receives a message that says what is missing and how to end. The next claim without evidence
    /// ends the run as [`Unproven`](crate::event::EndReason::Unproven), and so does the first one
    /// if no further request may be sent. New input, steered or as a follow-up, allows one more
    /// rejection. A model that answers `BLOCKED: ` and what is missing ends the run as
    /// [`Blocked`](crate::event::EndReason::Blocked). [`Outcome::why`](crate::Outcome::why) then
    /// says what is missing, and [`Outcome::proof`](crate::Outcome::proof) has the check that
    /// proves a completed run.
    ///
    /// Evidence is checked after the [validations](Self::with_validation) of the answer, which a
    /// blocked model need not pass, and after the stop hooks, whose decisions take precedence. Only
    /// changes and checks of this run count. In a run without a user message in its input, those in
    /// its history count as well.
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

    /// Turns the agent into a tool: each call runs the agent on a new history with the call's
    /// `prompt` as its input, and returns the text of its last turn.
    ///
    /// The sub-agent has its own prompt, tools, model and limits, and at most 80 turns by default.
    /// Its events are yielded by the parent's run as [`Nested`](crate::Event::Nested) events, one
    /// by one as they are pulled, and dropping or interrupting the parent drops it. The parent's
    /// journal keeps the journal of the sub-agent, see
    /// [`Journal::nested_journal`](crate::Journal::nested_journal), and
    /// [`RunHandle::sub_agent_handle`](crate::RunHandle::sub_agent_handle) returns its handle. If
    /// the sub-agent stopped early, the result says so.
    ///
    /// If a call of the sub-agent waits for a verdict, the sub-agent is suspended, and the parent's
    /// run ends as `pending` as well, after its other calls have ended. In the parent's
    /// [`pending`](crate::Outcome::pending) calls, the waiting call has the path to it, and
    /// [`resume`](Self::resume) continues the sub-agent.
    ///
    /// Side effects that the sub-agent's calls record are recorded for the parent's result as they
    /// happen. A call that was cut short without recording anything may have changed something; it
    /// is recorded as `cut_short` with the name of the tool. Of the sub-agent's evidence, the
    /// result keeps what still holds at its end: checks that passed after the last change, and
    /// checks that failed and have not passed since.
    ///
    /// Several sub-agents run concurrently, each with its own tools: by default at most 4
    /// sub-agents with at most 4 calls each. Each sub-agent has its own budget, set by
    /// [`with_budget`](Self::with_budget), and at most [8](crate::agent::Limits::max_depth) may be
    /// nested. To bound the total of a tree of agents, give all of them one
    /// [`Pool`](crate::agent::Pool).
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
    /// If a call of the sub-agent needs an approval:
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
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if the name is not one that all
    /// providers accept.
    pub fn as_tool(&self, name: &str, description: &str) -> Result<Tool, Error> {
        subagent::sub_agent_tool(Arc::clone(&self.0), name, description)
    }

    /// Sets the function that creates the [world](crate::world) of each run, which performs,
    /// records or replays all external effects of the run. The runs of sub-agents use the worlds of
    /// their own agents.
    ///
    /// `open` is called when a run is created, before its first poll.
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

    /// Returns the same agent without side effects: no hooks are called, time limits do not apply,
    /// and nothing is charged to a pool.
    pub(crate) fn without_side_effects(&self) -> Self {
        self.clone().update_settings(|it| {
            it.hooks = it.hooks.evidence_policy_only();
            it.limits.budget = it.limits.budget.clone().into_offline();
        })
    }

    /// Resumes the open calls with verdicts that have been checked already.
    pub(crate) fn resume_with_checked_verdicts(
        &self,
        history: History,
        verdicts: ResumeVerdicts,
    ) -> Run {
        let begin = RunArgs { history, input: Input::default(), resume_verdicts: Some(verdicts) };
        Run::new(Arc::clone(&self.0), begin, loop_body)
    }

    /// Starts the replay of a run. If it resumes calls, its verdicts are not known here.
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
