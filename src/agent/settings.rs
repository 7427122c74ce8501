//! What an agent is made of, one setting after the other.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::hook::Hook;
use crate::agent::{Agent, Budget, Limits};
use crate::context::{Ageing, Compactor, Window};
use crate::env::{Ids, TimeLimit};
use crate::provider::Provider;
use crate::request::Options;
use crate::tool::{Tool, Toolkit};

impl Agent {
    /// Replaces the tools, and the rules of their kit: at most 4 calls run at once.
    ///
    /// Two tools of one name are an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) of the run,
    /// before anything is sent.
    pub fn with_tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.with_kit(Toolkit::new(tools))
    }

    /// Adds a tool to those that the agent has, which are to have other names.
    pub fn with_tool(mut self, tool: Tool) -> Self {
        self.kit = self.kit.with_tool(tool);
        self
    }

    /// Sets the tools as a kit.
    pub fn with_kit(mut self, kit: Toolkit) -> Self {
        self.kit = if self.audited { kit.audited() } else { kit };
        self
    }

    /// Asks the model to say why it calls a tool, in an argument `_why` that no tool sees; see
    /// [`Tool::audited`]. A [trace](crate::Trace) shows it.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use serde_json::json;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec};
    /// use turnstream::{Agent, Events};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([
    ///     Reply::new().call("roll", json!({ "_why": { "expected_outcome": "a number" } })),
    ///     Reply::text("It is a six."),
    /// ]);
    /// let spec = ToolSpec {
    ///     name: "roll".into(),
    ///     description: "Rolls a die".into(),
    ///     parameters: json!({ "type": "object", "additionalProperties": false }),
    /// };
    /// let roll = Tool::raw(spec, |_args, _cx| async { 6 })?;
    /// let agent = Agent::new(model).with_tools([roll]).audited();
    ///
    /// let trace = agent.trace();
    /// agent.run("Roll a die").traced(&trace).for_each(|_| async {}).await;
    /// assert!(trace.events()[0].to_string().contains("expected_outcome: \"a number\""));
    /// # Ok(())
    /// # }
    /// ```
    pub fn audited(mut self) -> Self {
        self.audited = true;
        self.kit = self.kit.audited();
        self
    }

    /// Sets the part of the system prompt that stays the same.
    pub fn with_system(mut self, stable: impl Into<String>) -> Self {
        self.system.stable = stable.into();
        self
    }

    /// Sets the part of the system prompt that may change from run to run.
    pub fn with_volatile_system(mut self, volatile: impl Into<String>) -> Self {
        self.system.volatile = volatile.into();
        self
    }

    /// Sets how the model is asked: limits, sampling, reasoning, the form of the answer.
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets how many tokens an answer may have.
    pub fn with_max_output_tokens(mut self, tokens: u32) -> Self {
        self.options.max_output_tokens = Some(tokens);
        self
    }

    /// Sets the temperature; see [`Options::temperature`].
    pub fn with_temperature(mut self, temperature: f32) -> Self {
        self.options.temperature = Some(temperature);
        self
    }

    /// Sets how many requests a run may send: 20 unless set, 80 for a sub-agent. With 0 it sends
    /// none. What is corrected, continued or asked again counts like any other.
    pub fn with_max_turns(mut self, max_turns: u32) -> Self {
        self.limits.max_turns = max_turns;
        self.capped = true;
        self
    }

    /// Sets all numbers that decide, the cap on turns included.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self.capped = true;
        self
    }

    /// Sets what a run may cost: tokens, money, time, calls; see [`Budget`].
    ///
    /// It is looked at where nothing is lost: behind a response, behind the results of its calls,
    /// before a request. What was paid for is kept; only what would come next is not done.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::agent::Budget;
    /// use turnstream::event::Reason;
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
    /// let spec = ToolSpec {
    ///     name: "look".into(),
    ///     description: "Looks out of the window".into(),
    ///     parameters: json!({ "type": "object" }),
    /// };
    /// let look = Tool::raw(spec, |_args, _cx| async { "rain" })?;
    /// let budget = Budget::new().tool_calls(1).wrap_up();
    /// let agent = Agent::new(model).with_tools([look]).with_budget(budget);
    ///
    /// // The second call is not run, and the model answers with what it has.
    /// let outcome = agent.run("How is the weather?").outcome().await;
    /// assert_eq!(outcome.reason, Reason::Budget);
    /// assert_eq!(outcome.text, "It rained when I looked.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Adds a hook behind those that are there.
    ///
    /// ```
    /// use turnstream::agent::hook::{self, BeforeTool};
    /// use turnstream::{Agent, provider::Scripted};
    ///
    /// let agent = Agent::new(Scripted::new(["Hi!"]))
    ///     .with_hook(hook::before_tool(|_state, call| async move {
    ///         match call.name.as_str() {
    ///             "delete" => BeforeTool::Ask,
    ///             _ => BeforeTool::Run,
    ///         }
    ///     }));
    /// # drop(agent);
    /// ```
    pub fn with_hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Sets what tells this agent apart from others that share a hook:
    /// [`State::label`](crate::agent::State::label), which is also in the errors of hooks. A sub-agent
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
    ///         lines.lock().unwrap().push(format!("{} asks {}", state.label, state.model));
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
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets how long a hook may take for each answer, and for each time that it observes; 30 seconds
    /// unless set.
    ///
    /// The time is tokio's: outside of a tokio runtime the default does not hold, and a limit that was
    /// set is an error of a hook that is not ready at its first poll.
    pub fn with_hook_timeout(mut self, timeout: Duration) -> Self {
        self.hooks = self.hooks.with_timeout(timeout);
        self
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
    pub fn with_fallback(mut self, provider: impl Provider + 'static) -> Self {
        self.fallbacks.push(Arc::new(provider));
        self
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
    /// told to the hooks as a [failure](crate::agent::hook::Hook::failure), the request is sent as it
    /// is, and it is tried again when the request has grown by a twentieth of the window.
    ///
    /// ```
    /// use turnstream::context::{Compactor, Shorten, Summarize, Window};
    /// use turnstream::{Agent, provider::Scripted};
    ///
    /// let (model, cheaper) = (Scripted::new(["Done."]), Scripted::new(["They talked."]));
    /// let agent = Agent::new(model)
    ///     .with_window(Window::new(200_000))
    ///     .with_compactor(Shorten::new().or(Summarize::new(cheaper)));
    /// # drop(agent);
    /// ```
    pub fn with_window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets how a history is made shorter that nears the [window](Self::with_window), or that did not
    /// fit the model; [`Shorten`](crate::context::Shorten) unless set. The latter happens at most once
    /// in a history.
    pub fn with_compactor(mut self, compactor: impl Compactor + 'static) -> Self {
        self.compactor = Some(Arc::new(compactor));
        self
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
    pub fn with_ageing(mut self, ageing: Ageing) -> Self {
        self.ageing = Some(ageing);
        self
    }

    /// Sets how long the compactor may take; 120 seconds unless set. One that takes longer is dropped,
    /// and has failed. The time is tokio's: outside of a tokio runtime the default does not hold, and
    /// a limit that was set is an error of a compactor that does not answer at its first poll.
    pub fn with_compactor_timeout(mut self, timeout: Duration) -> Self {
        self.compactor_timeout = TimeLimit::Set(timeout);
        self
    }

    /// Never makes a history shorter: one that does not fit ends the run as `context_window`.
    pub fn without_compactor(mut self) -> Self {
        self.compactor = None;
        self
    }

    /// Waits for verdicts on calls that need approval, instead of ending the run as `pending`.
    ///
    /// The run is pending, in the sense of a stream, until [`approve`](crate::Run::approve) or
    /// [`deny`](crate::Run::deny) is called, between two pulls or from a handle. Calls of external
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
    /// let spec = ToolSpec {
    ///     name: "delete".into(),
    ///     description: "Deletes a file".into(),
    ///     parameters: json!({ "type": "object" }),
    /// };
    /// let delete = Tool::raw(spec, |_args, _cx| async { "deleted" })?.needs_approval();
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
    pub fn interactive(mut self) -> Self {
        self.interactive = true;
        self
    }

    /// Sets where ids come from; random ones unless set.
    pub fn with_ids(mut self, ids: impl Ids + 'static) -> Self {
        self.ids = Arc::new(ids);
        self
    }
}
