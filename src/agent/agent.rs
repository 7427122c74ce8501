//! The agent: its settings, and how it is run.

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
    /// Makes an agent without tools that sends at most 20 requests a run.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self(Arc::new(AgentSettings::new(Arc::new(provider))))
    }

    /// Runs on a new history. Nothing happens before the first poll.
    pub fn run(&self, input: impl Into<Input>) -> Run {
        self.run_from(History::new(&*self.0.ids), input)
    }

    /// Runs on a history, which is [settled](History::settled) first. With
    /// [`Input::default()`] nothing is said to begin with.
    ///
    /// Two runs on clones of one history may give their calls the same ids, and so their tools the
    /// same idempotency keys: [fork](History::fork) it to tell them apart.
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

    /// Runs on a history with a body of your own in the place of [`loop_body()`]. All else stays: the
    /// journal, the holders' handle, the one ending.
    ///
    /// The run must have each event before the body is polled again, as it has if the body's stream is
    /// returned as it is. An adapter that polls ahead, such as `ready_chunks` or a channel, hands the body
    /// a history that is out of date; a request without what it was told to say ends the run with
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    ///
    /// What a copy of [`loop_body`] needs besides this crate is `async-stream` and `futures`.
    ///
    /// A body that gives `Stop`, or no step at all, ends the run as `stopped`; `StopWith` ends it as
    /// the state's `ending` has it. A `Finished` that a body gives, such as that of another run, is
    /// left out: the run has its own.
    ///
    /// ```
    /// use turnstream::agent::{Agent, loop_body};
    /// use turnstream::provider::Scripted;
    /// use turnstream::{History, env::SystemIds};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Hello!"]));
    /// let mut laps = 0;
    /// let run = agent.run_with_body(
    ///     move |cx, state| {
    ///         laps += 1;
    ///         println!("lap {laps} begins with {} items", state.history.len());
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

    /// An empty trace that knows what a run of this agent may spend: requests, and the limits of its
    /// [`Budget`], but for a pool. Put it on a run with [`trace_to`](crate::EventStreamExt::trace_to).
    pub fn new_trace(&self) -> Trace {
        let trace = Trace::from_budgets(RemainingBudget {
            steps_remaining: Some(u64::from(self.0.limits.limits.max_turns)),
            ..self.0.limits.budget.remaining(&BudgetUsage::default())
        });
        trace.with_prices(self.0.limits.budget.prices().cloned().unwrap_or_default())
    }

    /// The agent's own tools. Those of its [sources](Self::with_tool_source) are known to a run.
    pub fn toolkit(&self) -> &Toolkit {
        &self.0.tools.toolkit
    }

    /// Goes on with a run that ended as `pending`: runs exactly the calls that were left open, each
    /// with its verdict, and then asks the model.
    ///
    /// `verdicts` has one verdict for each call that no result answers, together with the call
    /// itself: [`Outcome::pending`](crate::Outcome::pending) has these calls. A verdict holds for exactly
    /// this call, its arguments included; if a hook rewrites or repairs them to something else, the
    /// call is denied. Hooks are asked again, since they may have reasons of their own; a call that one
    /// denies stays denied. An external tool takes [`Verdict::Output`], its result, or a denial; a
    /// result that is given here counts also if the agent has no such tool any more.
    ///
    /// A call whose sub-agent was suspended takes no verdict itself. The verdicts are those on the calls
    /// that the sub-agent waits for, in any order, each with the path to it. The sub-agent continues with
    /// the history that `history` [keeps](History::nested_history) beside the call, and no hook or limit is asked
    /// about the call again. The sub-agent's counters and budgets begin anew, as the run's own do.
    ///
    /// Whoever keeps histories resumes each of them once: doing it twice runs the calls twice, under
    /// the same [idempotency keys](crate::tool::ToolContext::idempotency_key). The history of a
    /// resumed run that was dropped has the results that came, and only the others are open.
    ///
    /// In a history that was built by hand, the last item of the turn needs its
    /// [`TurnInfo`](crate::item::TurnInfo), which says that the turn is complete
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
    /// // The history can be stored, and somebody asked, for as long as it takes.
    /// let verdicts = outcome.pending.into_iter().map(|call| (call, Verdict::Approve));
    /// let outcome = agent.resume(outcome.history, verdicts)?.outcome().await;
    /// assert_eq!(outcome.text, "It is gone.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), before anything runs, if no call is open, if a
    /// verdict is missing, doubled or for a call that is not open, if an external call would have
    /// to run here, or if the tool of an approved call, or the sub-agent of a suspended one, is
    /// missing.
    pub fn resume(
        &self,
        history: impl Into<History>,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<Run, Error> {
        self.resume_with_body(loop_body, history, verdicts)
    }

    /// As [`resume`](Self::resume), with a body of your own; see [`run_with_body`](Self::run_with_body).
    ///
    /// # Errors
    ///
    /// As [`resume`](Self::resume).
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
        // Finds what cannot be resumed at all.
        drop(self.toolkit().resume(&history)?);
        let resuming = Some(check_verdicts(&self.0, self.toolkit(), &history, verdicts)?);
        let begin = RunArgs { history, input: Input::default(), resume_verdicts: resuming };
        Ok(Run::new(Arc::clone(&self.0), begin, body))
    }

    /// Replaces the tools, and the rules of their kit: at most 4 calls run at once.
    ///
    /// Two tools of one name are an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) of the run,
    /// before anything is sent.
    pub fn with_tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.with_toolkit(Toolkit::new(tools))
    }

    /// Adds a tool to those that the agent has, which are to have other names.
    pub fn with_tool(self, tool: Tool) -> Self {
        self.update_settings(|it| it.tools.toolkit = it.tools.toolkit.clone().with_tool(tool))
    }

    /// Sets the tools as a kit.
    pub fn with_toolkit(self, kit: Toolkit) -> Self {
        self.update_settings(|it| {
            it.tools.toolkit = if it.tools.requires_rationale { kit.with_rationale() } else { kit }
        })
    }

    /// Adds a source of tools that may change while a run continues, such as an MCP server. With several,
    /// their tools follow the agent's own in the order in which the sources were added.
    ///
    /// A run lists the tools of all sources before each request, and before it runs calls that it resumes. A
    /// list counts from the next request on: what the model is offered and what its calls run are the same
    /// list. All rules of the agent hold for these tools as well: hooks and approvals, the limits of its
    /// [`Toolkit`], [`with_rationale`](Self::with_rationale), dry runs.
    ///
    /// - **The first listing of a run** has to succeed, else the run ends with its error before a request;
    ///   calls that it was to resume are answered without running. A name that two tools have is an
    ///   [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    /// - **A list that has changed** is reported to the model before the next request, as an
    ///   [`Appended`](crate::Event::Appended) event with the reason
    ///   [`Hook`](crate::event::AppendReason::Hook): the names of tools that are new, not available any more,
    ///   described differently, or left out.
    /// - **A later listing that fails** changes nothing: the last list stays. The model is informed once,
    ///   until the source can be listed again, and so are hooks, by
    ///   [`on_failure`](crate::agent::hook::Hook::on_failure). A new tool whose name another one has is left
    ///   out, which is reported as well.
    /// - **A listing that takes longer than 30 seconds** has failed;
    ///   [`with_tool_source_timeout`](Self::with_tool_source_timeout) sets another limit.
    ///
    /// A new list changes how requests begin, since providers put the tools before the messages: what was
    /// cached until then is not read again, and thoughts that a model has bound to the tools no longer fit.
    /// [Anthropic's](crate::provider::Anthropic::without_drop_block) are left out by the vendor where it is
    /// asked to (`drop_block`).
    ///
    /// A replay of a run lists nothing. Where a durable engine continues a run from recorded lists, a call
    /// finds its tool when it runs: it lists the source first, and is answered with an error if the tool is
    /// gone or has changed. [`resume`](Self::resume) accepts verdicts on calls of tools that the agent does
    /// not have itself; the run looks them up, and answers a call whose tool is gone. A
    /// [session](crate::session::Session) does not run calls of these tools again after a crash, also if they
    /// are [idempotent](Tool::idempotent). [External](Tool::external) tools belong to the agent itself, since
    /// front ends look for them there.
    ///
    /// [`ToolSource`] has an example.
    pub fn with_tool_source(self, source: impl ToolSource + 'static) -> Self {
        self.update_settings(|it| Arc::make_mut(&mut it.tools.sources).push(Arc::new(source)))
    }

    /// Sets how long one listing of a [source](Self::with_tool_source) may take; 30 seconds unless set. The
    /// time is tokio's: outside of a tokio runtime the default does not hold, and a limit that was set is an
    /// error of a listing that is not done at its first poll.
    pub fn with_tool_source_timeout(self, timeout: Duration) -> Self {
        self.update_settings(|it| Arc::make_mut(&mut it.tools.sources).set_timeout(timeout))
    }

    /// Asks the model to say why it calls a tool, in an argument `_why` that no tool sees; see
    /// [`Tool::with_rationale`]. A [trace](crate::Trace) shows it.
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

    /// Sets the part of the system prompt that stays the same.
    pub fn with_system(self, stable: impl Into<String>) -> Self {
        self.update_settings(|it| it.prompt.system.stable = stable.into())
    }

    /// Sets the part of the system prompt that may change from run to run.
    pub fn with_volatile_system(self, volatile: impl Into<String>) -> Self {
        self.update_settings(|it| it.prompt.system.volatile = volatile.into())
    }

    /// Sets how the model is asked: limits, sampling, reasoning, the form of the answer. Options that were
    /// set before, for example by [`with_output`](Self::with_output), stay where these have
    /// [none](Options::or).
    pub fn with_options(self, options: Options) -> Self {
        self.update_settings(|it| {
            it.prompt.options = options.or(std::mem::take(&mut it.prompt.options));
        })
    }

    /// Sets how many tokens an answer may have.
    pub fn with_max_output_tokens(self, tokens: u32) -> Self {
        self.update_settings(|it| it.prompt.options.max_output_tokens = Some(tokens))
    }

    /// How many tokens an answer may have, if that is set.
    #[cfg(feature = "mcp")]
    pub(crate) fn max_output_tokens(&self) -> Option<u32> {
        self.0.prompt.options.max_output_tokens
    }

    /// Sets the temperature; see [`Options::temperature`].
    pub fn with_temperature(self, temperature: f32) -> Self {
        self.update_settings(|it| it.prompt.options.temperature = Some(temperature))
    }

    /// Sets how many requests a run may send: 20 unless set, 80 for a sub-agent. With 0 it sends
    /// none. What is corrected, continued or asked again counts like any other.
    pub fn with_max_turns(self, max_turns: u32) -> Self {
        self.update_settings(|it| {
            it.limits.limits.max_turns = max_turns;
            it.limits.is_max_turns_set = true;
        })
    }

    /// Sets all numbers that decide, the cap on turns included.
    pub fn with_limits(self, limits: Limits) -> Self {
        self.update_settings(|it| {
            it.limits.limits = limits;
            it.limits.is_max_turns_set = true;
        })
    }

    /// Sets what a run may cost: tokens, money, time, calls; see [`Budget`].
    ///
    /// It is looked at where nothing is lost: behind a response, behind the results of its calls,
    /// before a request. What was paid for is kept; only what would come next is not done.
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

    /// Adds a hook behind those that are there.
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

    /// Sets what tells this agent apart from others that share a hook:
    /// [`label`](crate::agent::StateFields::label), which is also in the errors of hooks. A sub-agent
    /// without one is called by the name of its tool. The labels of a tree add up: the sub-agent
    /// `reader` of `researcher` is `researcher/reader`.
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

    /// Sets how long a hook may take for each answer, and for each time that it observes; 30 seconds
    /// unless set.
    ///
    /// The time is tokio's: outside of a tokio runtime the default does not hold, and a limit that was
    /// set is an error of a hook that is not ready at its first poll.
    pub fn with_hook_timeout(self, timeout: Duration) -> Self {
        self.update_settings(|it| it.hooks.set_timeout(timeout))
    }

    /// Adds a provider that is asked when those before it failed in a way in which another may do
    /// better. What came of the open turn is taken back, the run continues as `fallback`, and stays
    /// with the new provider to its end. The next run begins with the first one.
    ///
    /// The next provider is asked at once: only the last one waits and retries. A connection that
    /// the server closed while it was not in use does not count as a failure, and is replaced.
    ///
    /// [`Fallback`](crate::provider::Fallback) does the same inside of one turn, begins with the
    /// first provider each time, and is not seen in the transitions.
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

    /// Sets the model's context window. Before a request that nears it, the
    /// [compactor](Self::with_compactor) is asked to make the history shorter, as often as that
    /// happens; see [`Window`] for what is near. Without one, only a request that did not fit makes
    /// a history shorter.
    ///
    /// What counts is the ledger: what a hook's
    /// [`transform_context`](crate::agent::hook::Hook::transform_context) makes of it is known where a
    /// provider has counted it, and not guessed at. Once asked, it is asked until the
    /// request is a quarter below the limit, or until it has nothing more. One that does not help is
    /// told to the hooks as a [failure](crate::agent::hook::Hook::on_failure), the request is sent as it
    /// is, and it is tried again when the request has grown by a twentieth of the window.
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

    /// Sets how a history is made shorter that nears the [window](Self::with_window), or that did not
    /// fit the model; [`Truncator`](crate::context::Truncator) unless set. The latter happens at most once
    /// in a history.
    pub fn with_compactor(self, compactor: impl Compactor + 'static) -> Self {
        self.update_settings(|it| it.context.compactor = Some(Arc::new(compactor)))
    }

    /// Shortens the reasoning and the arguments of calls in old turns as a conversation goes on, however
    /// much room the [window](Self::with_window) has; see [`Ageing`]. Off unless set.
    ///
    /// It is done before a request, without asking a model, and is a `rewritten` event. It does not
    /// count as the one compaction that a request which did not fit may have.
    ///
    /// ```
    /// use turnstream::context::Ageing;
    /// use turnstream::{Agent, provider::Scripted};
    ///
    /// // The newest ten to twenty turns stay as they were.
    /// let agent = Agent::new(Scripted::new(["Done."])).with_ageing(Ageing::after_turns(10));
    /// # drop(agent);
    /// ```
    pub fn with_ageing(self, ageing: Ageing) -> Self {
        self.update_settings(|it| it.context.ageing = Some(ageing))
    }

    /// Sets how long the compactor may take; 120 seconds unless set. One that takes longer is dropped,
    /// and has failed. The time is tokio's: outside of a tokio runtime the default does not hold, and
    /// a limit that was set is an error of a compactor that does not answer at its first poll.
    pub fn with_compactor_timeout(self, timeout: Duration) -> Self {
        self.update_settings(|it| it.context.compactor_timeout = TimeLimit::Explicit(timeout))
    }

    /// Never makes a history shorter: one that does not fit ends the run as `context_window`.
    pub fn without_compactor(self) -> Self {
        self.update_settings(|it| it.context.compactor = None)
    }

    /// Waits for verdicts on calls that need approval, instead of ending the run as `pending`.
    ///
    /// The run is pending, in the sense of a stream, until [`approve`](crate::RunHandle::approve) or
    /// [`deny`](crate::RunHandle::deny) is called, between two pulls or from a handle. Calls of external
    /// tools are not waited for.
    ///
    /// It waits only while something can answer: the owner of the run, if it is polled as a stream, or a
    /// [handle](crate::Run::handle) if its [`outcome`](crate::Run::outcome) is awaited. The same holds for
    /// a sub-agent: it can be answered wherever its parent can. Else the run ends as `pending`.
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

    /// Sets where ids come from; random ones unless set.
    pub fn with_id_generator(self, ids: impl Ids + 'static) -> Self {
        self.update_settings(|it| it.ids = Arc::new(ids))
    }

    /// Asks for an answer of the form of `T`, and checks that it is one.
    ///
    /// It sets [`Options::output`](crate::request::Options::output), so options as a whole are set
    /// before it. An answer that [`Turn::parse`] cannot read is rejected as
    /// [`with_validation`](Self::with_validation) has it. A completed run can be
    /// [parsed](crate::Outcome::parse).
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

    /// Checks an answer before the run is completed.
    ///
    /// It is asked about each turn with which the model stops by itself: not while it calls tools,
    /// and not when it refuses or is cut off, which ends the run for that reason: an answer that is
    /// checked is not continued. An answer with an `Err` is rejected: the model is told what is wrong
    /// and asked again, as often as [`with_max_corrections`](Self::with_max_corrections) has it; then the run
    /// ends as [`Malformed`](crate::event::EndReason::Malformed), with every rejected answer in its
    /// history.
    ///
    /// Several are asked in the order in which they were added, and the first `Err` counts. A panic
    /// in one ends the run with an error of kind [`Hook`](crate::ErrorKind::Hook).
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

    /// Sets how many replies in a row that cannot be used are corrected, 2 unless set; the next one
    /// ends the run as [`Malformed`](crate::event::EndReason::Malformed). Empty replies count, too, and
    /// turns none of whose calls could start.
    pub fn with_max_corrections(self, corrections: u32) -> Self {
        self.update_settings(|it| it.limits.limits.max_corrections = corrections)
    }

    /// Lets a run be completed only with evidence: a check that a tool has
    /// [put on record](crate::tool::ToolContext::record_evidence) and that passed behind the last change.
    /// [`EvidenceLog::verdict`](crate::agent::evidence::EvidenceLog::verdict) has the rules.
    ///
    /// A claim without it is sent back once: the model reads what is missing and how to end. The
    /// next one ends the run as [`Unproven`](crate::event::EndReason::Unproven), at once where no
    /// further request may be sent. Something new that is said to the model, by whoever steers or
    /// follows up, lets it be sent back once more. A model that answers `BLOCKED: ` and what is
    /// missing ends the run as [`Blocked`](crate::event::EndReason::Blocked).
    /// [`Outcome::why`](crate::Outcome::why) says what is missing, and
    /// [`Outcome::proof`](crate::Outcome::proof) which check proves a run that is completed.
    ///
    /// Evidence is looked at behind the [checks](Self::with_validation) of the answer, which a
    /// blocked model need not pass, and behind the stop hooks: what these say comes first. It is
    /// what this run was told and did that counts. A run without an input of its own goes on with
    /// what is in its history, and there all of it counts.
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
    ///     // Sent back: nothing was checked.
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

    /// Makes a tool of the agent: each call runs it on a history of its own, with the call's
    /// `prompt` as the input, and its last words are the result.
    ///
    /// It has its own prompt, tools, model and limits; at most 80 turns unless set. Its events come
    /// out of the parent's run as [`Nested`](crate::Event::Nested), one by one as they are pulled,
    /// and dropping or interrupting the parent drops it. The parent's journal keeps its story, see
    /// [`Journal::nested_journal`](crate::Journal::nested_journal), and [`RunHandle::sub_agent_handle`](crate::RunHandle::sub_agent_handle) reaches it while it
    /// runs. A result that stopped early says so.
    ///
    /// If a call of the sub-agent waits for a verdict, the sub-agent is suspended, and the run of the
    /// parent ends as `pending`, too, when its other calls have ended. The parent's
    /// [`pending`](crate::Outcome::pending) calls have the path to the call that waits, and
    /// [`resume`](Self::resume) lets the sub-agent continue.
    ///
    /// What its calls changed is on record as the result's own, as it happens; a call that was cut
    /// short and told nothing may have changed something, and is there as `cut_short` with the tool's
    /// name. Of its evidence, what holds at its end is kept: checks that passed after its last change,
    /// and those that failed and have not passed since.
    ///
    /// Several run beside each other, and each brings its own tools: at most 4 times 4 at once, unless
    /// the kits say otherwise. A budget of its own is what [`with_budget`](Self::with_budget) set, and
    /// at most [8](crate::agent::Limits::max_depth) run inside one another; give all of a tree one
    /// [`Pool`](crate::agent::Pool) to bound them together.
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
    /// With a call that needs an approval inside:
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
    /// // The history can be stored; the sub-agent continues where it was.
    /// let outcome = agent.resume(outcome.history, [(call, Verdict::Approve)])?.outcome().await;
    /// assert_eq!(outcome.text, "All clean.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if the name is not what every provider
    /// takes.
    pub fn as_tool(&self, name: &str, description: &str) -> Result<Tool, Error> {
        subagent::sub_agent_tool(Arc::clone(&self.0), name, description)
    }

    /// Sets what makes the [world](crate::world) of each run: everything that the run asks of the outside
    /// goes through it. The runs of sub-agents are in the worlds of their own agents.
    ///
    /// `open` is called when a run is made, before its first poll.
    pub fn with_world<W: World + 'static>(
        self,
        open: impl Fn(&Self, &RunStart<'_>) -> W + Send + Sync + 'static,
    ) -> Self {
        self.update_settings(|it| {
            it.world =
                Arc::new(move |settings, start| Arc::new(open(&Self(Arc::clone(settings)), start)));
        })
    }

    /// Another history with the same items, under an id of its own.
    pub(crate) fn fork_history(&self, history: &History) -> History {
        history.fork(&*self.0.ids)
    }

    /// What makes the world of each run.
    pub(crate) fn world_factory(&self) -> WorldFactory {
        Arc::clone(&self.0.world)
    }

    /// The world of a run of this agent.
    pub(crate) fn open_world(&self, world: &WorldFactory, start: &RunStart<'_>) -> Arc<dyn World> {
        world(&self.0, start)
    }

    /// The request that asks for the next turn.
    pub(crate) fn build_request(&self, history: &History) -> Request {
        let tools = offered_tools(self.toolkit(), &*self.0.providers.provider);
        self.0.build_request(self.toolkit(), tools, history)
    }

    /// The same agent where nothing is performed: no hook is asked, no time counts, and what is used is
    /// taken from no pool.
    pub(crate) fn without_side_effects(&self) -> Self {
        self.clone().update_settings(|it| {
            it.hooks = it.hooks.evidence_policy_only();
            it.limits.budget = it.limits.budget.clone().into_offline();
        })
    }

    /// A run that goes on with the calls that are open, with verdicts that were checked.
    pub(crate) fn resume_with_checked_verdicts(
        &self,
        history: History,
        verdicts: ResumeVerdicts,
    ) -> Run {
        let begin = RunArgs { history, input: Input::default(), resume_verdicts: Some(verdicts) };
        Run::new(Arc::clone(&self.0), begin, loop_body)
    }

    /// A run that was begun before, and of whose verdicts nothing is known.
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
            .field("kit", self.toolkit())
            .field("limits", &self.0.limits.limits)
            .finish_non_exhaustive()
    }
}
