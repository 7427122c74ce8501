//! The data that the detectors examine: a run's turns and results so far.

use std::borrow::Cow;

use crate::agent::State;
use crate::item::{Evidence, SideEffect, ToolCall, ToolResult};
use crate::tool::unwrapped_call;
use crate::turn::Turn;

/// The data that the detectors examine after a turn, before the turn's calls run.
pub(super) struct DetectionInput<'a> {
    /// This run's turns whose calls have results, oldest first.
    pub(super) iterations: Vec<CompletedIteration<'a>>,
    /// The latest turn.
    pub(super) turn: &'a Turn,
    /// Whether the latest turn directly follows the last of the `iterations`.
    pub(super) has_new_iteration: bool,
    pub(super) state: &'a State,
}

/// A turn whose calls have results, also called an iteration.
#[derive(Default)]
pub(super) struct CompletedIteration<'a> {
    /// The calls and their results, in call order.
    pub(super) calls: Vec<(Cow<'a, ToolCall>, &'a ToolResult)>,
    /// The number of input tokens in the turn's request.
    pub(super) input_tokens: u64,
}

/// A problem that a detector has found.
pub(super) struct Finding {
    pub(super) call_id: Option<String>,
    pub(super) message: String,
}

impl<'a> DetectionInput<'a> {
    pub(super) fn new(state: &'a State, turn: &'a Turn) -> Self {
        let iterations = completed_iterations(state);
        let later = state.history.live_newest_first().take_while(|item| !item.is_model_output());
        let is_fresh =
            !iterations.is_empty() && later.into_iter().any(|item| item.as_tool_result().is_some());
        Self { iterations, turn, has_new_iteration: is_fresh, state }
    }

    /// Returns the latest iteration and all earlier iterations, or `None` if the latest turn does
    /// not directly follow the latest iteration.
    pub(super) fn newest_and_earlier_iterations(
        &self,
    ) -> Option<(&CompletedIteration<'a>, &[CompletedIteration<'a>])> {
        self.iterations.split_last().filter(|_| self.has_new_iteration)
    }
}

/// Returns the iterations of this run, which are the most recent iterations in the history.
fn completed_iterations(state: &State) -> Vec<CompletedIteration<'_>> {
    let mut iterations: Vec<CompletedIteration<'_>> = Vec::new();
    let mut results: Vec<&ToolResult> = Vec::new();
    let (mut in_results, mut is_void, mut count) = (false, false, 0);
    for item in state.history.newest_first() {
        if let Some(result) = item.as_tool_result() {
            if !in_results {
                if count >= state.counts.tool_turns {
                    break;
                }
                (in_results, is_void, count) = (true, true, count + 1);
            }
            // Iterations that consist of tombstones are counted but not returned.
            if item.tombstone {
                continue;
            }
            if std::mem::take(&mut is_void) {
                iterations.push(CompletedIteration::default());
                results.clear();
            }
            results.push(result);
            continue;
        }
        in_results &= item.tombstone && !item.is_model_output();
        if item.tombstone {
            continue;
        }
        let Some(iteration) = iterations.last_mut() else { continue };
        if let Some(info) = &item.turn
            && iteration.input_tokens == 0
        {
            iteration.input_tokens = info.usage.input_tokens;
        }
        let answer =
            |call: &ToolCall| results.iter().find(|result| result.call_id == call.call_id).copied();
        if let Some(call) = item.as_tool_call()
            && let Some(result) = answer(call)
        {
            iteration.calls.insert(0, (unwrapped_call(call), result));
        }
    }
    iterations.reverse();
    iterations
}

impl CompletedIteration<'_> {
    /// Returns the checks recorded in this iteration, each with the call that recorded it.
    pub(super) fn recorded_checks(&self) -> impl Iterator<Item = (&ToolCall, Evidence)> {
        self.calls.iter().flat_map(|(call, result)| {
            result_checks(result).map(move |evidence| (&**call, evidence))
        })
    }

    /// Returns whether any result in this iteration reports a side effect.
    pub(super) fn has_side_effects(&self) -> bool {
        self.calls.iter().any(|(_, result)| !result_side_effects(result).is_empty())
    }
}

pub(super) fn result_checks(result: &ToolResult) -> impl Iterator<Item = Evidence> {
    let evidence = result.report.iter().flat_map(|report| &report.evidence);
    evidence.filter_map(Evidence::from_json)
}

pub(super) fn result_side_effects(result: &ToolResult) -> &[SideEffect] {
    result.report.as_deref().map_or(&[], |report| &report.side_effects)
}

impl Finding {
    pub(super) fn for_call(call: &ToolCall, what: String) -> Self {
        Self { call_id: Some(call.call_id.clone()), message: what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{History, Item, ItemFlag, ResultKind};

    #[test]
    fn tombstoned_iterations_and_those_of_earlier_runs_are_ignored() {
        let mut items = Vec::new();
        for n in 0..4 {
            let call = Item::tool_call(format!("c{n}"), "look", "{}");
            let result = call.as_tool_call().map(|it| ToolResult::for_call(it, ResultKind::Ok, ""));
            items.extend([call, Item::tool_result(result.unwrap())]);
        }
        for item in &mut items[4..6] {
            *item = item.clone().with_flag(ItemFlag::Tombstone);
        }
        let history = History::from_items("h", items);
        // The first two iterations belong to an earlier run.
        let state = State::new(history).update(|it| it.counts.tool_turns = 2);
        let iterations = completed_iterations(&state);
        let called = iterations
            .iter()
            .flat_map(|iteration| &iteration.calls)
            .map(|(call, _)| &*call.call_id);
        assert_eq!((iterations.len(), called.collect::<Vec<_>>()), (1, vec!["c3"]));
    }
}
