//! Detects repeated tool calls that do the same work twice.

use crate::agent::detect::detection_input::{DetectionInput, Finding, result_side_effects};
use crate::agent::same_call::{ParsedArgs, is_same_call};
use crate::item::{SideEffect, ToolCall, ToolResult};

/// The maximum number of earlier calls to a tool that are compared with a new call, which bounds
/// the work per turn.
const MAX_COMPARED_CALLS: usize = 32;

/// Detects tool calls that do the same work a second time, in two cases:
///
/// - A tool `created` or `sent` something, and a later call with the same arguments created or sent
///   something else, such as a second ticket or email. Creating the same thing again is not
///   reported. Only the tool's latest 32 calls that created something are compared.
/// - Two calls with the same arguments `changed` the same thing, and no call between them recorded
///   a change.
///
/// The problem is reported only for the second call, not for further calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NonIdempotentRetry {
    /// The names of tools that may be called repeatedly, such as a tool that rotates logs. Calls to
    /// these tools are never reported.
    pub repeatable_tools: Vec<String>,
}

impl NonIdempotentRetry {
    pub(super) fn detect(&self, seen: &DetectionInput<'_>) -> Option<Finding> {
        let (newest, earlier) = seen.newest_and_earlier_iterations()?;
        let mut calls: Vec<(&ToolCall, &ToolResult)> = earlier
            .iter()
            .chain([newest])
            .flat_map(|iteration| iteration.calls.iter().map(|(call, result)| (&**call, *result)))
            .filter(|(_, result)| !result_side_effects(result).is_empty())
            .collect();
        let fresh =
            newest.calls.iter().filter(|(_, result)| !result_side_effects(result).is_empty());
        for _ in 0..fresh.count() {
            // Each call in the iteration, from the last to the first, is compared with all earlier
            // calls.
            let (call, result) = calls.pop()?;
            if self.repeatable_tools.contains(&call.name) {
                continue;
            }
            if let Some(what) = describe_duplicate_creation(call, result, &calls)
                .or_else(|| describe_duplicate_change(call, result, &calls))
            {
                return Some(Finding::for_call(call, what));
            }
        }
        None
    }
}

fn describe_duplicate_creation(
    call: &ToolCall,
    result: &ToolResult,
    before: &[(&ToolCall, &ToolResult)],
) -> Option<String> {
    let now = side_effect_targets(result, is_creation);
    if now.is_empty() {
        return None;
    }
    let arguments = ParsedArgs::from_call(call);
    let makers = before.iter().rev().filter(|(other, _)| other.name == call.name);
    let made = makers.map(|(other, result)| (other, side_effect_targets(result, is_creation)));
    let made = made.filter(|(_, made)| !made.is_empty()).take(MAX_COMPARED_CALLS);
    let made: Vec<Vec<&str>> =
        made.filter(|(other, _)| arguments.equals_args_of(other)).map(|(_, made)| made).collect();
    let [first] = &made[..] else { return None };
    let other = now.into_iter().find(|target| !first.contains(target))?;
    let name = &call.name;
    Some(format!(
        "`{name}` was called again with the same arguments and created `{other}` in addition to \
         `{}`",
        first[0]
    ))
}

fn describe_duplicate_change(
    call: &ToolCall,
    result: &ToolResult,
    before: &[(&ToolCall, &ToolResult)],
) -> Option<String> {
    let ((other, changed), before) = before.split_last()?;
    let is_second = !before.last().is_some_and(|(other, _)| is_same_call(call, other));
    let changed = side_effect_targets(changed, is_change);
    let twice = side_effect_targets(result, is_change)
        .into_iter()
        .find(|target| changed.contains(target))?;
    (is_second && is_same_call(call, other)).then(|| {
        format!(
            "`{}` was called again with the same arguments and changed `{twice}` twice",
            call.name
        )
    })
}

fn side_effect_targets(result: &ToolResult, which: fn(&SideEffect) -> bool) -> Vec<&str> {
    let effects = result_side_effects(result).iter().filter(|effect| which(effect));
    effects.map(|effect| effect.target.as_str()).collect()
}

fn is_creation(effect: &SideEffect) -> bool {
    matches!(&*effect.kind, "created" | "sent")
}

fn is_change(effect: &SideEffect) -> bool {
    effect.kind == "changed"
}
