//! Creates the entries that settle a history, so that a session can continue.

use std::collections::HashSet;

use crate::event::{Event, RewriteReason, ToolEvent};
use crate::item::{
    History, INTERRUPTED_BEFORE_START, INTERRUPTED_MID_EXECUTION, Item, ItemKind, ResultKind,
    ToolCall, ToolResult,
};
use crate::session::Entry;

/// The entries that settle a history, and the events that report the results in these entries.
#[derive(Debug, Default)]
pub(super) struct SettleEntries {
    pub(super) entries: Vec<Entry>,
    pub(super) events: Vec<Event>,
}

impl SettleEntries {
    /// Creates the entries that turn the history into its [`History::settled`] form. No entries are
    /// created if the history is already settled. The new results of the calls in `not_started`
    /// state that the calls were interrupted before they started.
    pub(super) fn for_history(history: &History, not_started: &HashSet<String>) -> Self {
        let mut settling = Self::default();
        if history.is_settled() {
            return settling;
        }
        let (was, mut is): (Vec<Item>, Vec<Item>) =
            (history.iter().cloned().collect(), history.settled().iter().cloned().collect());
        let same = was.iter().zip(&is).take_while(|(a, b)| a == b).count();
        let answered: HashSet<&str> =
            was.iter().filter_map(|item| Some(&*item.as_tool_result()?.call_id)).collect();
        for item in &mut is[same..] {
            if let ItemKind::ToolResult(result) = &mut item.kind
                && not_started.contains(&result.call_id)
                && !answered.contains(&*result.call_id)
            {
                result.content = INTERRUPTED_BEFORE_START.into();
            }
        }
        let more = &is[same..];
        if same == was.len() && more.iter().all(|item| item.as_tool_result().is_some()) {
            for result in more.iter().filter_map(Item::as_tool_result) {
                settling.push_result(result.clone());
            }
            return settling;
        }
        let behind = was[same..].iter().rev().zip(more.iter().rev());
        let behind = behind.take_while(|(a, b)| a == b).count();
        let (from, to) = (same, was.len() - behind);
        let items = is[from..is.len() - behind].to_vec();
        let why = RewriteReason::Other;
        settling.entries.push(Entry::Rewritten { why, from, to, items });
        settling
    }

    /// Creates entries with an interrupted result for each of the given open calls in `history`.
    pub(super) fn for_interrupted_calls<'a>(
        history: &History,
        calls: impl IntoIterator<Item = &'a ToolCall>,
    ) -> Self {
        let mut settling = Self::default();
        for call in calls {
            let kind = ResultKind::Interrupted;
            let result = ToolResult::for_call(call, kind, INTERRUPTED_MID_EXECUTION);
            settling.push_result(result.with_report(history.nested_effect_report(&call.call_id)));
        }
        settling
    }

    fn push_result(&mut self, result: ToolResult) {
        self.entries.push(Entry::Item(Item::tool_result(result.clone())));
        self.events.push(Event::Tool(ToolEvent::Output(result)));
    }
}
