//! An agent as a tool of another.

use std::sync::Arc;

use async_stream::stream;
use futures::StreamExt;
use serde_json::json;

use crate::agent::evidence::is_cut_short;
use crate::agent::run::Begin;
use crate::agent::settings::Settings;
use crate::agent::{Input, Run, RunHandle, body};
use crate::error::Error;
use crate::event::{Event, Outcome, Reason, ToolEvent};
use crate::http::Timeouts;
use crate::item::{History, Item, SideEffect, ToolResult};
use crate::tool::{
    PreparedCall, Suspension, Tool, ToolContext, ToolOutput, ToolSpec, Update, Updates, Why,
    checked_spec,
};

/// The cap of a sub-agent, unless one is set.
const MAX_TURNS: u32 = 80;

/// A tool each of whose calls runs the agent.
pub(super) fn tool(
    mut settings: Arc<Settings>,
    name: &str,
    description: &str,
) -> Result<Tool, Error> {
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
    if !settings.bounds.capped {
        let bounds = &mut Arc::make_mut(&mut settings).bounds;
        (bounds.limits.max_turns, bounds.capped) = (MAX_TURNS, true);
    }
    // It hands a dry run on.
    let own = Arc::clone(&settings);
    let agent = SubAgent { settings, name: spec.name.clone() };
    let resumed = agent.clone();
    let tool = Tool::preparing(checked_spec(spec)?, move |_, arguments| {
        let Arguments { prompt } = read(arguments)?;
        let agent = agent.clone();
        Ok(PreparedCall::new(move |cx| agent.run(prompt.into(), cx)))
    });
    // One that continues has its prompt, and a hook may have repaired the arguments at first: they are
    // read only for one that begins anew, where the history of the run before is not known.
    let tool = tool.with_agent(own, move |cx, arguments| {
        let prompt = read(&Why::split(arguments).1).map(|Arguments { prompt }| prompt.into());
        resumed.clone().run(prompt.unwrap_or_default(), cx)
    });
    Ok(tool.running_agents().knows_dry_runs().with_timeout(Timeouts::NEVER))
}

#[derive(Clone)]
struct SubAgent {
    settings: Arc<Settings>,
    /// The name of its tool.
    name: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    prompt: String,
}

fn read(arguments: &str) -> Result<Arguments, String> {
    serde_json::from_str(arguments).map_err(|error| error.to_string())
}

impl SubAgent {
    /// Runs on the input, or continues a run of the same call that was suspended.
    fn run(self, input: Input, cx: ToolContext) -> Updates {
        let mut settings = Settings::clone(&self.settings);
        if cx.is_dry_run() {
            settings.tools.kit = settings.tools.kit.dry_run(true);
        }
        let harmless = Arc::clone(&settings.tools.harmless);
        let parent = cx.extension::<RunHandle>();
        settings.label = below(parent.as_deref(), &settings.label, &self.name);
        let suspended =
            parent.as_ref().and_then(|it| it.history().nested_history(cx.call_id()).cloned());
        let (history, input, resuming) = match (suspended, &parent) {
            (Some(history), Some(parent)) => {
                // The record of a call that was suspended went with it.
                for result in history.iter().filter_map(Item::as_tool_result) {
                    pass_up_changes(&cx, result, &harmless);
                }
                match history.unanswered_calls().is_empty() {
                    // It was dropped after its calls had their results.
                    true => (history.settled(), Input::default(), None),
                    false => {
                        let verdicts = parent.control.verdicts_in(cx.call_id());
                        (history, Input::default(), Some(verdicts))
                    }
                }
            }
            // The same call has the same history, and its calls the same keys.
            _ => (History::from_id(cx.idempotency_key()), input, None),
        };
        let run = Run::new(Arc::new(settings), Begin { history, input, resuming }, body);
        let mut run = run.inheriting(cx.run_data().clone());
        if let Some(parent) = &parent {
            parent.adopt(cx.call_id(), &run.own_handle());
        }
        stream! {
            while let Some(Ok(event)) = run.next().await {
                if let Event::Tool(ToolEvent::Output(result)) = &event {
                    // At once, so that it is on record also if the child never ends.
                    pass_up_changes(&cx, result, &harmless);
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
        .boxed()
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
fn pass_up_changes(cx: &ToolContext, result: &ToolResult, harmless: &[String]) {
    let told = result.report.as_deref().map_or(&[][..], |report| &report.side_effects);
    for effect in told {
        cx.side_effect(effect.clone());
    }
    let is_harmless = || harmless.contains(&result.name);
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
