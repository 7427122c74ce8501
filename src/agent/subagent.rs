//! Runs an agent as another agent's tool.

use std::sync::Arc;

use async_stream::stream;
use futures::StreamExt;
use serde_json::json;

use crate::agent::evidence::has_unknown_effects;
use crate::agent::run::run::RunArgs;
use crate::agent::settings::AgentSettings;
use crate::agent::{Input, Run, RunHandle, loop_body};
use crate::error::Error;
use crate::event::{EndReason, Event, Outcome, ToolEvent};
use crate::http::Timeouts;
use crate::item::{History, SideEffect, ToolResult};
use crate::tool::{
    InnerToolNames, OutputStatus, PreparedCall, Rationale, Suspension, Tool, ToolContext,
    ToolOutput, ToolSpec, ToolUpdate, UpdateStream, validate_spec,
};

/// The default maximum number of requests that a sub-agent may send.
const DEFAULT_MAX_TURNS: u32 = 80;

/// The result of a call whose sub-agent completed without an answer.
const COMPLETED_WITHOUT_TEXT: &str = "[the agent completed its task without an answer in words]";

/// Creates a tool that runs the agent when it is called. In a dry run of the created tool, the
/// calls to the agent's own tools are dry runs as well.
pub(super) fn sub_agent_tool(
    mut settings: Arc<AgentSettings>,
    name: &str,
    description: &str,
) -> Result<Tool, Error> {
    let spec = ToolSpec::new(
        name,
        description,
        json!({
            "type": "object",
            "properties": {
                "prompt": { "type": "string", "description": "The task, with all the information \
                 needed for it" },
            },
            "required": ["prompt"],
            "additionalProperties": false,
        }),
    );
    let limits = &mut Arc::make_mut(&mut settings).limits.limits;
    limits.max_turns.get_or_insert(DEFAULT_MAX_TURNS);
    // The tool keeps the settings so that a resumed run can check verdicts on the sub-agent's
    // calls.
    let own = Arc::clone(&settings);
    let agent = SubAgent { settings, name: spec.name.clone() };
    let resumed = agent.clone();
    let tool = Tool::from_prepare_fn(validate_spec(spec)?, move |_, arguments| {
        let SubAgentArgs { prompt } = parse_args(arguments)?;
        let agent = agent.clone();
        Ok(PreparedCall::new(move |cx| agent.run(prompt.into(), cx)))
    });
    // The history of a suspended run contains the prompt. The arguments are used only if the
    // history is unknown and the run starts over. Parsing the arguments may fail, since a hook may
    // have repaired them when the call first ran.
    let tool = tool.backed_by_agent(own, move |cx, arguments| {
        let prompt = parse_args(&Rationale::split_arguments(arguments).1)
            .map(|SubAgentArgs { prompt }| prompt.into());
        resumed.clone().run(prompt.unwrap_or_default(), cx)
    });
    Ok(tool.running_sub_agents().with_dry_run_support().with_timeout(Timeouts::NEVER))
}

#[derive(Clone)]
struct SubAgent {
    settings: Arc<AgentSettings>,
    /// The name of the tool that runs the agent.
    name: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SubAgentArgs {
    prompt: String,
}

fn parse_args(arguments: &str) -> Result<SubAgentArgs, String> {
    serde_json::from_str(arguments).map_err(|error| error.to_string())
}

impl SubAgent {
    /// Runs the sub-agent with the given input, or resumes its suspended run for the same call.
    fn run(self, input: Input, cx: ToolContext) -> UpdateStream {
        let mut settings = AgentSettings::clone(&self.settings);
        if cx.is_dry_run() {
            settings.tools.toolkit = settings.tools.toolkit.with_dry_run(true);
        }
        let harmless = Arc::clone(&settings.tools.read_only_tools);
        let parent = cx.policy_extension::<RunHandle>();
        let suspends = parent.as_ref().is_some_and(|parent| parent.control.verdicts.suspends.get());
        if suspends {
            // If `suspends` is true, the parent's run waits for the verdicts on the sub-agent's
            // calls.
            settings.tools.interactive = false;
        }
        settings.label = nested_label(parent.as_deref(), &settings.label, &self.name);
        let suspended = parent.as_ref().and_then(|it| it.journal().suspended_history(cx.call_id()));
        let (history, input, resuming) = match (suspended, &parent) {
            (Some(history), Some(parent)) => {
                // The effect report of the suspended call was not kept, so it is rebuilt from the
                // results.
                let mut names = InnerToolNames::default();
                for result in history.iter().filter_map(|item| names.next_result(item)) {
                    forward_side_effects(&cx, &result, &harmless);
                }
                match history.unanswered_calls().is_empty() {
                    // The sub-agent was dropped after all of its calls had been answered.
                    true => (history, Input::default(), None),
                    false => {
                        let verdicts = parent.control.verdicts.of_sub_agent(cx.call_id());
                        (history, Input::default(), Some(verdicts))
                    }
                }
            }
            // If the call is repeated, the sub-agent's history gets the same id, so the sub-agent's
            // calls get the same idempotency keys.
            _ => (History::empty(cx.idempotency_key()), input, None),
        };
        let run = Run::new(
            Arc::new(settings),
            RunArgs { history, input, resume_verdicts: resuming },
            loop_body,
        );
        let mut run = run.with_parent_run_data(cx.run_data().clone());
        if suspends {
            run.internal_handle().control.verdicts.suspends.set(true);
        }
        if let Some(parent) = &parent {
            let grants = &run.internal_handle().control.grants;
            grants.join_parent(&parent.control.grants, &self.name);
            parent.attach_sub_agent(cx.call_id(), &run.internal_handle());
        }
        stream! {
            while let Some(Ok(event)) = run.next().await {
                if let Event::Tool(ToolEvent::Output(result)) = &event {
                    // Side effects are recorded immediately, in case the sub-agent never ends.
                    forward_side_effects(&cx, result, &harmless);
                }
                let end = event.outcome().map(|outcome| final_update(outcome, parent.is_some()));
                if let Some(ToolUpdate::Output(output)) = &end {
                    for evidence in run.evidence_log().unresolved_evidence(output.status == OutputStatus::Failed) {
                        cx.record_evidence(evidence);
                    }
                }
                yield ToolUpdate::NestedEvent(Box::new(event));
                if let Some(end) = end {
                    yield end;
                }
            }
        }
        .boxed()
    }
}

/// Returns the label for a sub-agent: its parent's label, followed by the sub-agent's own label or
/// the name of its tool.
fn nested_label(parent: Option<&RunHandle>, own: &str, tool: &str) -> Arc<str> {
    let own = if own.is_empty() { tool } else { own };
    match parent.map_or("", |parent| parent.control.sub_agents.label()) {
        "" => own.into(),
        above => format!("{above}/{own}").into(),
    }
}

/// Records, for the parent's call, the changes that one of the sub-agent's calls made or may have
/// made.
fn forward_side_effects(cx: &ToolContext, result: &ToolResult, harmless: &[String]) {
    let reported = result.report.as_deref().map_or(&[][..], |report| &report.side_effects);
    for effect in reported {
        cx.record_side_effect(effect.clone());
    }
    let is_harmless = || harmless.contains(&result.name);
    if reported.is_empty() && has_unknown_effects(result.kind) && !is_harmless() {
        cx.record_side_effect(SideEffect { kind: "cut_short".into(), target: result.name.clone() });
    }
}

/// Returns the final update from the call that ran the sub-agent. The call is suspended if the
/// sub-agent is waiting for a verdict and has a parent run.
fn final_update(outcome: &Outcome, can_wait: bool) -> ToolUpdate {
    match outcome.reason == EndReason::Pending && can_wait {
        true => ToolUpdate::Suspended(Box::new(Suspension {
            pending_calls: outcome.pending.clone(),
            sub_agent_history: outcome.history.clone(),
        })),
        false => ToolUpdate::Output(sub_agent_output(outcome)),
    }
}

/// Converts a sub-agent's outcome into the output of the call that ran the sub-agent.
fn sub_agent_output(outcome: &Outcome) -> ToolOutput {
    let text = outcome.labeled_text();
    let says_something = !outcome.text.trim().is_empty();
    match outcome.reason {
        EndReason::Completed if says_something => ToolOutput::ok(text),
        // The sub-agent may have done what it was asked to do, so this is not an error.
        EndReason::Completed => ToolOutput::ok(COMPLETED_WITHOUT_TEXT),
        // A partial answer may be useful.
        EndReason::MaxTurns | EndReason::Budget | EndReason::Truncated | EndReason::Stopped
            if says_something =>
        {
            ToolOutput::ok(text)
        }
        _ => ToolOutput::error(text),
    }
}
