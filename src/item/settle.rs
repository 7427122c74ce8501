//! Settles a history, so that each tool call has exactly one result, which directly follows the
//! call's turn.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use crate::item::{Item, ItemKind, ResultKind, ToolCall, ToolResult};

/// The result text for an interrupted call whose tool had started or may have started.
pub const INTERRUPTED_MID_EXECUTION: &str = "Interrupted mid-execution";
/// The result text for an interrupted call whose tool had not started.
pub const INTERRUPTED_BEFORE_START: &str = "Interrupted by user";
/// Returns the text of an interrupted result, including the reason for the interrupt, if any.
pub(crate) fn interrupted_text(text: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{text}: {reason}"),
        None => text.to_owned(),
    }
}

/// The result text for a call whose tool was running when the run's time limit was reached.
pub(crate) const TIMED_OUT_MID_EXECUTION: &str = "Timed out: the time of this run is over. The call may \
     have taken effect in part: check before you repeat it.";
/// The result text for a call whose tool had not started when the run's time limit was reached.
pub(crate) const TIMED_OUT_BEFORE_START: &str = "Not run: the time of this run is over.";

/// The call ids in the part of a history that is already settled. They are needed to settle the
/// items that follow.
#[derive(Default)]
pub(super) struct PriorCallIds<'a> {
    /// The ids of the prefix's calls, excluding tombstones.
    pub(super) live_call_ids: HashSet<&'a str>,
    /// Every call id that the history contains or ever contained, including the ids of calls
    /// removed by rewrites.
    pub(super) used_call_ids: HashSet<&'a str>,
}

/// Returns the settled form of the items.
pub(super) fn settle(items: &[&Item], before: &PriorCallIds<'_>) -> Vec<Item> {
    let plan = SettlePlan::new(items, before);
    let mut out = Vec::with_capacity(items.len());
    let mut batch = CallBatch::default();
    for (at, item) in items.iter().enumerate() {
        if item.tombstone {
            out.push((*item).clone());
            continue;
        }
        match &item.kind {
            ItemKind::ToolResult(result) => {
                // A result whose call is not in this batch was moved to its call, or has no call.
                if let Some(call_at) = plan.call_by_result.get(&at)
                    && (batch.start..at).contains(call_at)
                {
                    out.push(result_with_new_id(item, result, &plan.new_call_ids, *call_at));
                }
                batch.has_results = true;
            }
            ItemKind::ToolCall(call) => {
                if item.interrupted {
                    continue;
                }
                batch.close_if_ended_by(at, items, &plan, &mut out);
                out.push(call_with_new_id(item, call, &plan.new_call_ids, at));
            }
            _ => {
                batch.close_if_ended_by(at, items, &plan, &mut out);
                out.push((*item).clone());
            }
        }
        batch.turn_ended |= item.turn.is_some();
    }
    batch.close(items.len(), items, &plan, &mut out);
    out
}

/// Returns the calls from completed turns that have no result.
pub(super) fn unanswered_calls(items: &[&Item], before: &PriorCallIds<'_>) -> Vec<ToolCall> {
    let plan = SettlePlan::new(items, before);
    let answered: HashSet<usize> = plan.call_by_result.values().copied().collect();
    let open = items.iter().enumerate().filter(|(at, _)| !answered.contains(at));
    open.filter(|(_, item)| !item.interrupted && !item.tombstone)
        .filter_map(|(_, item)| item.as_tool_call().cloned())
        .collect()
}

/// The positions of calls and their results. Tombstones and calls from interrupted turns are not
/// paired.
pub(super) struct CallResultPairs {
    pub(super) call_by_result: HashMap<usize, usize>,
    pub(super) result_by_call: HashMap<usize, usize>,
}

/// Returns the pairs of calls and results that settling keeps together.
pub(super) fn pair_calls_with_results(items: &[&Item]) -> CallResultPairs {
    let SettlePlan { call_by_result: call_of, result_by_call: result_of, .. } =
        SettlePlan::new(items, &PriorCallIds::default());
    CallResultPairs { call_by_result: call_of, result_by_call: result_of }
}

/// Checks in a single pass whether all of the items are settled.
#[cfg(test)]
pub(super) fn is_settled(items: &[&Item]) -> bool {
    let mut seen: HashSet<&str> = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let (mut answering, mut turn_ended) = (false, false);
    for item in items.iter().filter(|item| !item.tombstone) {
        match &item.kind {
            ItemKind::ToolResult(result) => {
                let Some(at) = open.iter().position(|id| *id == result.call_id) else {
                    return false;
                };
                open.remove(at);
                answering = true;
            }
            kind => {
                if ends_batch(item, answering, turn_ended) {
                    if !open.is_empty() {
                        return false;
                    }
                    (answering, turn_ended) = (false, false);
                }
                if let ItemKind::ToolCall(call) = kind {
                    if item.interrupted || !seen.insert(&call.call_id) {
                        return false;
                    }
                    open.push(&call.call_id);
                }
            }
        }
        turn_ended |= item.turn.is_some();
    }
    open.is_empty()
}

/// Returns whether all calls before `item` must already have results.
pub(super) fn ends_batch(item: &Item, answering: bool, turn_ended: bool) -> bool {
    let speaks_from_outside = matches!(item.kind, ItemKind::User { .. } | ItemKind::System { .. });
    answering || turn_ended || speaks_from_outside
}

/// A batch of calls that starts at position `start`, together with the state needed to find its
/// end.
#[derive(Default)]
struct CallBatch {
    start: usize,
    has_results: bool,
    turn_ended: bool,
}

impl CallBatch {
    fn close_if_ended_by(
        &mut self,
        at: usize,
        items: &[&Item],
        plan: &SettlePlan,
        out: &mut Vec<Item>,
    ) {
        if ends_batch(items[at], self.has_results, self.turn_ended) {
            self.close(at, items, plan, out);
        }
    }

    /// Writes the results of the batch's calls, except for results that are among the batch's
    /// items.
    fn close(&mut self, end: usize, items: &[&Item], plan: &SettlePlan, out: &mut Vec<Item>) {
        for call_at in self.start..end {
            let item = items[call_at];
            let ItemKind::ToolCall(call) = &item.kind else { continue };
            if item.tombstone || item.interrupted {
                continue;
            }
            match plan.result_by_call.get(&call_at) {
                Some(at) if (call_at..end).contains(at) => {}
                Some(at) => {
                    let item = items[*at];
                    if let ItemKind::ToolResult(result) = &item.kind {
                        out.push(result_with_new_id(item, result, &plan.new_call_ids, call_at));
                    }
                }
                None => {
                    let mut answer = ToolResult::for_call(
                        call,
                        ResultKind::Interrupted,
                        INTERRUPTED_MID_EXECUTION,
                    );
                    if let Some(id) = plan.new_call_ids.get(&call_at) {
                        answer.call_id.clone_from(id);
                    }
                    out.push(Item::tool_result(answer));
                }
            }
        }
        *self = Self { start: end, ..Self::default() };
    }
}

/// The positions of calls and their results, and the new ids of calls with duplicate ids.
struct SettlePlan {
    call_by_result: HashMap<usize, usize>,
    result_by_call: HashMap<usize, usize>,
    new_call_ids: HashMap<usize, String>,
}

impl SettlePlan {
    fn new(items: &[&Item], before: &PriorCallIds<'_>) -> Self {
        let mut plan = Self {
            call_by_result: HashMap::new(),
            result_by_call: HashMap::new(),
            new_call_ids: HashMap::new(),
        };
        let live = || items.iter().enumerate().filter(|(_, item)| !item.tombstone);
        // The ids include those of tombstones and of items that were rewritten.
        let here = items.iter().filter_map(|item| Some(item.as_tool_call()?.call_id.clone()));
        let mut taken: HashSet<String> =
            here.chain(before.used_call_ids.iter().map(|id| (*id).to_owned())).collect();
        let mut renamed: HashMap<&str, usize> = HashMap::new();
        let mut seen: HashSet<&str> = before.live_call_ids.clone();
        let mut void: HashSet<&str> = HashSet::new();
        // The positions of calls without a result, newest batch first, and of results without a
        // call. Both maps are keyed by call id.
        let mut calls: HashMap<&str, BTreeSet<(Reverse<usize>, usize)>> = HashMap::new();
        let mut early: HashMap<&str, VecDeque<usize>> = HashMap::new();
        let (mut batch, mut answering, mut turn_ended) = (0, false, false);
        for (at, item) in live() {
            let is_result = item.as_tool_result().is_some();
            if !is_result && ends_batch(item, answering, turn_ended) {
                (batch, turn_ended) = (batch + 1, false);
            }
            answering = is_result;
            turn_ended |= item.turn.is_some();
            match &item.kind {
                ItemKind::ToolCall(call) => {
                    if item.interrupted {
                        void.insert(&call.call_id);
                        continue;
                    }
                    if !seen.insert(&call.call_id) {
                        let last = renamed.entry(&call.call_id).or_default();
                        let id = unused_call_id(&call.call_id, last, |id| taken.contains(id));
                        taken.insert(id.clone());
                        plan.new_call_ids.insert(at, id);
                    }
                    match early.get_mut(call.call_id.as_str()).and_then(VecDeque::pop_front) {
                        Some(result_at) => plan.add_pair(at, result_at),
                        None => {
                            let open = calls.entry(&call.call_id).or_default();
                            open.insert((Reverse(batch), at));
                        }
                    }
                }
                ItemKind::ToolResult(result) => {
                    // Pairs the result with the first open call with this id in the newest batch
                    // that has such a call. If there is no such call, the result waits for a later
                    // call.
                    match calls.get_mut(result.call_id.as_str()).and_then(BTreeSet::pop_first) {
                        Some((_, call_at)) => plan.add_pair(call_at, at),
                        None if seen.contains(result.call_id.as_str()) => {}
                        None if void.contains(result.call_id.as_str()) => {}
                        None => early.entry(&result.call_id).or_default().push_back(at),
                    }
                }
                _ => {}
            }
        }
        plan
    }

    fn add_pair(&mut self, call_at: usize, result_at: usize) {
        self.call_by_result.insert(result_at, call_at);
        self.result_by_call.insert(call_at, result_at);
    }
}

/// Returns the first of the ids `<id>_dup1`, `<id>_dup2`, … that is not in use.
///
/// All numbers up to `last` must be in use; `last` is set to the number of the returned id.
pub(crate) fn unused_call_id(id: &str, last: &mut usize, in_use: impl Fn(&str) -> bool) -> String {
    loop {
        *last += 1;
        let new_id = format!("{id}_dup{last}");
        if !in_use(&new_id) {
            return new_id;
        }
    }
}

fn call_with_new_id(item: &Item, call: &ToolCall, ids: &HashMap<usize, String>, at: usize) -> Item {
    match ids.get(&at) {
        None => item.clone(),
        Some(id) => Item {
            kind: ItemKind::ToolCall(ToolCall { call_id: id.clone(), ..call.clone() }),
            ..item.clone()
        },
    }
}

fn result_with_new_id(
    item: &Item,
    result: &ToolResult,
    ids: &HashMap<usize, String>,
    call_at: usize,
) -> Item {
    match ids.get(&call_at) {
        None => item.clone(),
        Some(id) => Item {
            kind: ItemKind::ToolResult(ToolResult { call_id: id.clone(), ..result.clone() }),
            ..item.clone()
        },
    }
}
