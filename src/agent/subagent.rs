//! An agent as a tool of another.

use std::sync::Arc;

use async_stream::stream;
use futures::StreamExt;
use serde_json::json;

use crate::agent::evidence::{RequireEvidence, is_cut_short};
use crate::agent::{Agent, Input, RunHandle};
use crate::error::Error;
use crate::event::{Event, Outcome, Reason, ToolEvent};
use crate::http::Timeouts;
use crate::item::{History, Item, SideEffect, ToolResult};
use crate::tool::{
    Suspension, Tool, ToolContext, ToolHandler, ToolOutput, ToolSpec, Update, Updates, checked_spec,
};

/// The cap of a sub-agent, unless one is set.
const MAX_TURNS: u32 = 80;

impl Agent {
    /// Makes a tool of the agent: each call runs it on a history of its own, with the call's
    /// `prompt` as the input, and its last words are the result.
    ///
    /// It has its own prompt, tools, model and limits; at most 80 turns unless set. Its events come
    /// out of the parent's run as [`Nested`](crate::Event::Nested), one by one as they are pulled,
    /// and dropping or interrupting the parent drops it. The parent's journal keeps its story, see
    /// [`Journal::nested`](crate::Journal::nested), and [`RunHandle::nested`] reaches it while it
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
    /// use turnstream::event::Reason;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec, Verdict};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let spec = ToolSpec {
    ///     name: "delete".into(),
    ///     description: "Deletes a file".into(),
    ///     parameters: json!({ "type": "object" }),
    /// };
    /// let delete = Tool::raw(spec, |_args, _cx| async { "deleted" })?.needs_approval();
    /// let deletes = Reply::new().call_raw("d1", "delete", r#"{"file":"notes"}"#);
    /// let cleaner = Agent::new(Scripted::new([deletes, "It is gone.".into()])).with_tools([delete]);
    ///
    /// let delegates = Reply::new().call_raw("c1", "clean", r#"{"prompt":"Delete my notes"}"#);
    /// let agent = Agent::new(Scripted::new([delegates, "All clean.".into()]))
    ///     .with_tools([cleaner.as_tool("clean", "Cleans up")?]);
    ///
    /// let outcome = agent.run("Clean up").outcome().await;
    /// assert_eq!(outcome.reason, Reason::Pending);
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
        let spec = ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "prompt": { "type": "string", "description": "What is to be done, with all that has to be known for it" },
                },
                "required": ["prompt"],
                "additionalProperties": false,
            }),
        };
        let mut agent = self.clone();
        if !agent.capped {
            agent = agent.with_max_turns(MAX_TURNS);
        }
        // It hands a dry run on.
        let own = Arc::new(agent.clone());
        let tool = Tool::from_handler(SubAgent { agent, spec: checked_spec(spec)? });
        Ok(tool.with_agent(own).running_agents().knows_dry_runs().with_timeout(Timeouts::NEVER))
    }
}

struct SubAgent {
    agent: Agent,
    spec: ToolSpec,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    prompt: String,
}

fn read(arguments: &str) -> Result<Arguments, String> {
    serde_json::from_str(arguments).map_err(|error| error.to_string())
}

impl ToolHandler for SubAgent {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn check(&self, arguments: &str) -> Result<(), String> {
        read(arguments).map(drop)
    }

    fn call(&self, arguments: &str, cx: ToolContext) -> Result<Updates, String> {
        let mut agent = self.agent.clone();
        if cx.is_dry_run() {
            agent.kit = agent.kit.dry_run(true);
        }
        let policy = agent.evidence.clone();
        let parent = cx.extension::<RunHandle>();
        agent.label = below(parent.as_deref(), &agent.label, &self.spec.name);
        let suspended = parent.as_ref().and_then(|it| it.history().nested(cx.call_id()).cloned());
        let run = match (suspended, &parent) {
            (Some(history), Some(parent)) => {
                // The record of a call that was suspended went with it.
                for result in history.iter().filter_map(Item::as_tool_result) {
                    pass_up_changes(&cx, result, policy.as_ref());
                }
                match history.unanswered_calls().is_empty() {
                    // It was dropped after its calls had their results.
                    true => agent.run_from(history, Input::default()),
                    false => agent.rerun(history, parent.control.verdicts_in(cx.call_id())),
                }
            }
            _ => {
                // One that continues has its prompt; a hook may have repaired the arguments at first.
                let Arguments { prompt } = read(arguments)?;
                // The same call has the same history, and its calls the same keys.
                agent.run_from(History::with_id(cx.idempotency_key()), prompt)
            }
        };
        let mut run = run.inheriting(cx.run_data().clone());
        if let Some(parent) = &parent {
            parent.control.adopt(cx.call_id(), run.own_handle());
        }
        Ok(stream! {
            while let Some(Ok(event)) = run.next().await {
                if let Event::Tool(ToolEvent::Output(result)) = &event {
                    // At once, so that it is on record also if the child never ends.
                    pass_up_changes(&cx, result, policy.as_ref());
                }
                let end = event.finished().map(|outcome| end(outcome, parent.is_some()));
                if let Some(Update::Output(output)) = &end {
                    for evidence in run.standing().left(output.failed) {
                        cx.evidence(evidence);
                    }
                }
                yield Update::Nested(Box::new(event));
                if let Some(end) = end {
                    yield end;
                }
            }
        }
        .boxed())
    }
}

/// The label of a sub-agent: its own, or the name of its tool, below that of its parent.
fn below(parent: Option<&RunHandle>, own: &str, tool: &str) -> Arc<str> {
    let own = if own.is_empty() { tool } else { own };
    match parent.map_or("", |parent| parent.control.label()) {
        "" => own.into(),
        above => format!("{above}/{own}").into(),
    }
}

/// Puts on the parent's record what a call of the child changed, or may have.
fn pass_up_changes(cx: &ToolContext, result: &ToolResult, policy: Option<&RequireEvidence>) {
    let told = result.report.as_deref().map_or(&[][..], |report| &report.side_effects);
    for effect in told {
        cx.side_effect(effect.clone());
    }
    let is_harmless = || policy.is_some_and(|policy| policy.is_harmless(&result.name));
    if told.is_empty() && is_cut_short(result.kind) && !is_harmless() {
        cx.side_effect(SideEffect { kind: "cut_short".into(), target: result.name.clone() });
    }
}

/// How the call ends: it stays open if the child waits for a verdict and its parent can wait, too.
fn end(outcome: &Outcome, can_wait: bool) -> Update {
    match outcome.reason == Reason::Pending && can_wait {
        true => Update::Suspended(Box::new(Suspension {
            pending: outcome.pending.clone(),
            nested: outcome.history.clone(),
        })),
        false => Update::Output(output(outcome)),
    }
}

/// What the parent reads of an outcome.
fn output(outcome: &Outcome) -> ToolOutput {
    let text = outcome.stamped_text();
    let says_something = !outcome.text.trim().is_empty();
    match outcome.reason {
        Reason::Completed => ToolOutput::ok(text),
        // What was found until then may be of use.
        Reason::MaxTurns | Reason::Budget | Reason::Truncated | Reason::Stopped
            if says_something =>
        {
            ToolOutput::ok(text)
        }
        _ => ToolOutput::error(text),
    }
}
