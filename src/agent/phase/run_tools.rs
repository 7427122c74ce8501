//! Provides a result for each call in a turn.

use std::sync::Arc;

use crate::agent::resume::check_verdicts;
use crate::agent::run::run_policy::RunPolicy;
use crate::agent::run::run_shared::RunShared;
use crate::agent::{Decision, State, prompts};
use crate::error::{Error, ErrorKind};
use crate::item::ResultKind;
use crate::tool::redact_each;
use crate::tool::{PollTimer, RemainingSubAgentDepth, ToolRun};
use crate::turn::Turn;

/// Returns a stream that provides a result for each call in a turn, either by running the call or
/// by using the result that `decision` requires instead.
pub(in crate::agent) fn run_tools(
    run: &RunShared,
    state: &State,
    turn: Option<&Arc<Turn>>,
    decision: &Decision,
) -> Result<ToolRun, Error> {
    drop(run.control().tools.take_started_calls());
    let toolkit = run.toolkit();
    let tools = match (turn, &state.model_selection.offered_tools) {
        (Some(turn), Some(offered)) => toolkit.restricted_to(offered).run(&state.history, turn),
        (Some(turn), None) => toolkit.run(&state.history, turn),
        (None, _) => {
            ensure_listed(run, state)?;
            toolkit.resume(&state.history)?
        }
    };
    let tools = match turn.is_none_or(|turn| !turn.calls().is_empty()) {
        true => with_run_data(run, tools),
        false => tools,
    };
    let tools = match decision {
        Decision::RunTools => {
            let tools = tools.with_policy(RunPolicy::new(run.clone(), state.clone()));
            let budget = &run.settings.limits.budget;
            match (budget.remaining_calls(&run.budget_usage(state)), budget.call_limit_exceeded()) {
                (Some(left), Some(exceeded)) => {
                    let why = prompts::not_run_over_budget(&exceeded);
                    tools.with_call_limit(left, ResultKind::Budget, why)
                }
                (Some(_) | None, _) => tools,
            }
        }
        Decision::RefuseTools { result_kind: kind, reason: why, .. } => {
            tools.with_refusal(*kind, why.clone())
        }
        Decision::Continue(_) | Decision::Stop | Decision::Fail(_) => tools,
    };
    let handle = Arc::clone(&run.handle);
    let tools = tools.with_history_source(move || handle.history());
    let journal = run.handle.journal().clone();
    let tools = tools.with_known_result_callback(move |result| journal.set_known_result(result));
    let tools = {
        // The closure must not hold the run, since the run holds the world, which in turn holds the
        // closure.
        let (hooks, state) = (run.hooks().clone(), state.clone());
        tools.with_progress_redactor(move |call, data| {
            let data = std::slice::from_mut(data);
            redact_each(data, |data| hooks.redact_progress(&state, call, data))
        })
    };
    let tools = time_polls(run, state, tools);
    let has_calls = tools.calls().next().is_some();
    Ok(if has_calls { run.effects.fan_out(tools) } else { tools })
}

/// Measures the polls of the tools, if a hook or a hub observes them.
fn time_polls(run: &RunShared, state: &State, tools: ToolRun) -> ToolRun {
    let current = run.control().tools.current_poll.get().cloned();
    if run.hooks().is_empty() && current.is_none() {
        return tools;
    }
    let (hooks, state) = (run.hooks().clone(), state.clone());
    let limit = run.settings.limits.limits.long_poll;
    tools.with_poll_timer(PollTimer::new(limit, current, move |call, elapsed| {
        hooks.on_long_poll(&state, call, elapsed);
    }))
}

/// Waits until the world provides verdicts on the pending calls, and then resumes these calls.
pub(in crate::agent) async fn resume_pending_calls(
    run: &RunShared,
    state: &State,
) -> Result<Option<Box<ToolRun>>, Error> {
    let waits = run.settings.tools.interactive && run.effects.world().can_suspend();
    let pending = &state.approvals.pending;
    if !waits || pending.is_empty() {
        return Ok(None);
    }
    let elapsed = run.control().usage.started_at().elapsed();
    let left = run
        .settings
        .limits
        .budget
        .effective_time_limit()
        .map(|limit| limit.saturating_sub(elapsed));
    let verdicts = run.effects.suspend(pending.clone(), left).await?;
    let has_verdict = |call| verdicts.iter().any(|(pending, _)| pending == call);
    if !pending.iter().all(has_verdict) {
        return Ok(None);
    }
    let verdicts = check_verdicts(&run.settings, &run.toolkit(), &state.history, verdicts)?;
    run.control().verdicts.set_of_sub_agents(verdicts.clone());
    let resuming = state.clone().update(|it| it.approvals.resume_verdicts = Some(verdicts));
    Ok(Some(Box::new(run_tools(run, &resuming, None, &Decision::RunTools)?)))
}

/// Returns an error if the body has not listed the tools from the sources. Without this check,
/// calls to tools from sources would be treated as calls to unknown tools.
fn ensure_listed(run: &RunShared, state: &State) -> Result<(), Error> {
    let own = &run.settings.tools.toolkit;
    let is_unlisted = !run.settings.tools.sources.is_empty()
        && run.control().tools.listed.last_iteration().is_none()
        && state.history.unanswered_calls().iter().any(|call| own.get(&call.name).is_none());
    match is_unlisted {
        false => Ok(()),
        true => {
            let why = "calls were resumed before the agent's tool sources were listed: the body did \
                       not call `refresh_tools`";
            Err(Error::new(ErrorKind::InvalidRequest, why))
        }
    }
}

/// Adds the run's data and the remaining nesting depth for sub-agents to the tool run.
fn with_run_data(run: &RunShared, tools: ToolRun) -> ToolRun {
    let data = run.control().tools.data();
    let max_depth = run.settings.limits.limits.max_depth;
    let left = data.get::<RemainingSubAgentDepth>().map_or(max_depth, |left| left.0);
    match left.checked_sub(1) {
        Some(left) => tools.with_data(data.insert(RemainingSubAgentDepth(left))),
        None => tools.with_data(data).without_sub_agents(),
    }
}
