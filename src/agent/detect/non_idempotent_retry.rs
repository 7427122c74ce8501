//! A call that was repeated has done its work twice.

use std::sync::Arc;

use serde_json::Value;

use crate::agent::detect::detection_input::{DetectionInput, Finding, side_effects};
use crate::item::{SideEffect, ToolCall, ToolResult};
use crate::tool::Rationale;

/// So many calls of a tool are compared, so that a long run costs no more than a short one each turn.
const MAX_COMPARED_CALLS: usize = 32;

/// Sees the same call do its work twice.
///
/// - The same tool with the same arguments has `created` or `sent` something, and then something
///   else: two tickets, two mails. The same thing made once more is one thing. It looks back at the
///   32 calls of the tool before that made something.
/// - It has `changed` the same thing twice, and no call in between has put a change on record.
///
/// It is told when it happens for the second time, and not for each time behind that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NonIdempotentRetry {
    repeatable: Arc<[String]>,
}

impl NonIdempotentRetry {
    /// Names the tools that are meant to be called again, for example one that rolls a log over.
    pub fn with_repeatable_tools<N: Into<String>>(
        mut self,
        tools: impl IntoIterator<Item = N>,
    ) -> Self {
        self.repeatable = tools.into_iter().map(Into::into).collect();
        self
    }

    pub(super) fn find(&self, seen: &DetectionInput<'_>) -> Option<Finding> {
        let (newest, earlier) = seen.newest_and_earlier()?;
        let mut calls: Vec<(&ToolCall, &ToolResult)> = earlier
            .iter()
            .chain([newest])
            .flat_map(|lap| lap.calls.iter().copied())
            .filter(|(_, result)| !side_effects(result).is_empty())
            .collect();
        let fresh = newest.calls.iter().filter(|(_, result)| !side_effects(result).is_empty());
        for _ in 0..fresh.count() {
            // From the newest to the oldest of the lap, each with those before it.
            let (call, result) = calls.pop()?;
            if self.repeatable.contains(&call.name) {
                continue;
            }
            if let Some(what) =
                created_twice(call, result, &calls).or_else(|| changed_twice(call, result, &calls))
            {
                return Some(Finding::for_call(call, what));
            }
        }
        None
    }
}

fn created_twice(
    call: &ToolCall,
    result: &ToolResult,
    before: &[(&ToolCall, &ToolResult)],
) -> Option<String> {
    let now = targets(result, is_creation);
    if now.is_empty() {
        return None;
    }
    let arguments = ParsedArgs::of(call);
    let makers = before.iter().rev().filter(|(other, _)| other.name == call.name);
    let made = makers.map(|(other, result)| (other, targets(result, is_creation)));
    let made = made.filter(|(_, made)| !made.is_empty()).take(MAX_COMPARED_CALLS);
    let made: Vec<Vec<&str>> =
        made.filter(|(other, _)| arguments.equal_those_of(other)).map(|(_, made)| made).collect();
    let [first] = &made[..] else { return None };
    let other = now.into_iter().find(|target| !first.contains(target))?;
    let name = &call.name;
    Some(format!(
        "`{name}` was called again as before and has made `{other}` beside `{}`",
        first[0]
    ))
}

fn changed_twice(
    call: &ToolCall,
    result: &ToolResult,
    before: &[(&ToolCall, &ToolResult)],
) -> Option<String> {
    let ((other, changed), before) = before.split_last()?;
    let is_second = !before.last().is_some_and(|(other, _)| is_same(call, other));
    let changed = targets(changed, is_change);
    let twice = targets(result, is_change).into_iter().find(|target| changed.contains(target))?;
    (is_second && is_same(call, other)).then(|| {
        format!("`{}` was called again as before and has changed `{twice}` twice", call.name)
    })
}

fn is_same(one: &ToolCall, other: &ToolCall) -> bool {
    one.name == other.name && ParsedArgs::of(one).equal_those_of(other)
}

/// The arguments of a call, without what the model says of it: that makes it no other call.
struct ParsedArgs<'a> {
    written: &'a str,
    read: Option<Value>,
}

impl<'a> ParsedArgs<'a> {
    fn of(call: &'a ToolCall) -> Self {
        Self { written: &call.arguments, read: read(call) }
    }

    fn equal_those_of(&self, other: &ToolCall) -> bool {
        self.written == other.arguments || (self.read.is_some() && self.read == read(other))
    }
}

fn read(call: &ToolCall) -> Option<Value> {
    serde_json::from_str(&Rationale::split_arguments(call.arguments_or_empty_object()).1).ok()
}

fn targets(result: &ToolResult, which: fn(&SideEffect) -> bool) -> Vec<&str> {
    let effects = side_effects(result).iter().filter(|effect| which(effect));
    effects.map(|effect| effect.target.as_str()).collect()
}

fn is_creation(effect: &SideEffect) -> bool {
    matches!(&*effect.kind, "created" | "sent")
}

fn is_change(effect: &SideEffect) -> bool {
    effect.kind == "changed"
}
