//! How the calls of a turn are answered.

use std::sync::Arc;

use crate::agent::gate::RunGate;
use crate::agent::resume::judged;
use crate::agent::shared::Shared;
use crate::agent::{Decision, State, words};
use crate::error::Error;
use crate::item::ResultKind;
use crate::tool::{AgentsLeft, ToolRun};
use crate::turn::Turn;

/// The answers of a turn's calls: what runs, or what they are answered with instead.
pub(super) fn answers(
    run: &Shared,
    state: &State,
    turn: Option<&Arc<Turn>>,
    decision: &Decision,
) -> Result<ToolRun, Error> {
    drop(run.control().take_started());
    let kit = &run.settings.tools.kit;
    let tools = match (turn, &state.asked.offered) {
        (Some(turn), Some(offered)) => kit.offering(offered).run(&state.history, turn),
        (Some(turn), None) => kit.run(&state.history, turn),
        (None, _) => kit.resume(&state.history)?,
    };
    let tools = match turn.is_none_or(|turn| !turn.calls().is_empty()) {
        true => handing_over(run, tools),
        false => tools,
    };
    let tools = match decision {
        Decision::RunTools => {
            let tools = tools.gated(RunGate::new(run.clone(), state.clone()));
            let budget = &run.settings.bounds.budget;
            match (budget.calls_left(&run.spent(state)), budget.too_many_calls()) {
                (Some(left), Some(exceeded)) => {
                    let why = words::out_of_budget(&exceeded);
                    tools.limited(left, ResultKind::Budget, why)
                }
                (Some(_) | None, _) => tools,
            }
        }
        Decision::Refuse { kind, why, .. } => tools.refused(*kind, why.clone()),
        Decision::Then(_) | Decision::Stop => tools,
    };
    let handle = Arc::clone(&run.handle);
    let tools = tools.told_by(move || handle.history());
    let has_calls = tools.calls().next().is_some();
    Ok(if has_calls { run.effects.fan_out(tools) } else { tools })
}

/// The calls that are pending, with the verdicts that the world has waited for.
pub(super) async fn resumed(run: &Shared, state: &State) -> Result<Option<Box<ToolRun>>, Error> {
    let waits = run.settings.tools.interactive && run.effects.world().suspends();
    let pending = &state.approvals.pending;
    if !waits || pending.is_empty() {
        return Ok(None);
    }
    let elapsed = run.control().started().elapsed();
    let left = run.settings.bounds.budget.timer().map(|limit| limit.saturating_sub(elapsed));
    let verdicts = run.effects.suspend(pending.clone(), left).await?;
    let has_verdict = |call| verdicts.iter().any(|(judged, _)| judged == call);
    if !pending.iter().all(has_verdict) {
        return Ok(None);
    }
    let verdicts = judged(&run.settings, &state.history, verdicts)?;
    run.control().keep_verdicts(verdicts.clone());
    let resuming = state.clone().with(|it| it.approvals.resuming = Some(verdicts));
    Ok(Some(Box::new(answers(run, &resuming, None, &Decision::RunTools)?)))
}

/// Calls with the data of the run, and with what is left of the depth of sub-agents.
fn handing_over(run: &Shared, tools: ToolRun) -> ToolRun {
    let data = run.control().data();
    let max_depth = run.settings.bounds.limits.max_depth;
    let left = data.get::<AgentsLeft>().map_or(max_depth, |left| left.0);
    match left.checked_sub(1) {
        Some(left) => tools.with_data(data.with(AgentsLeft(left))),
        None => tools.with_data(data).refusing_agents(),
    }
}
