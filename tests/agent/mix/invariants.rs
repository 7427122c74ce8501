//! Invariants after each event of a run, and at its end.

use std::collections::HashSet;

use serde_json::Value;
use turnstream::agent::RunHandle;
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::PendingCall;
use turnstream::tool::Verdict;
use turnstream::turn::StopReason;
use turnstream::{Event, Item, Journal, Outcome};

use super::driver::SeedRun;

impl SeedRun {
    /// Records an event.
    pub(crate) fn record_event(&mut self, history: &str, path: &mut Vec<String>, event: &Event) {
        let key = |call_id: &str| format!("{history}/{call_id}");
        match event {
            Event::Turn(event) => {
                let Some(turn) = event.turn_complete() else { return };
                if matches!(turn.stop_reason(), StopReason::Stop | StopReason::ToolCalls) {
                    self.allowed_keys.extend(turn.tool_calls().map(|call| key(&call.call_id)));
                }
            }
            Event::Tool(ToolEvent::Started { call_id, .. }) => {
                assert!(self.started_keys.insert(key(call_id)), "{call_id} started twice");
            }
            // The call starts again when its sub-agent continues.
            Event::Tool(ToolEvent::Suspended { call_id, .. }) => {
                assert!(self.started_keys.remove(&key(call_id)), "{call_id} did not start");
            }
            Event::Tool(ToolEvent::Output(result)) => {
                *self.answer_counts.entry(key(&result.call_id)).or_default() += 1;
                assert_eq!(self.answer_counts[&key(&result.call_id)], 1, "{result:?} came twice");
            }
            Event::Tool(ToolEvent::ApprovalRequested(call)) => {
                let request = (path.clone(), key(&call.call_id), (**call).clone());
                self.approval_requests.push(request);
            }
            Event::Nested { call_id, event, .. } => {
                path.push(call_id.clone());
                self.record_event(&key(call_id), path, event);
                path.pop();
            }
            _ => {}
        }
    }

    /// Checks the invariants after each event.
    pub(crate) fn check_state(&mut self, journal: &Journal, folded: &Journal) {
        let history = journal.history();
        assert_eq!(folded.history(), history, "the folded history");
        assert_eq!(folded.usage(), journal.usage(), "the folded usage");
        assert_eq!(folded.nested_usage(), journal.nested_usage(), "the folded nested usage");
        let settled = history.settled();
        assert!(settled.is_settled(), "the history is settled");
        assert_eq!(settled.settled(), settled, "the history is settled twice");
        let wrong = self.tools.violations.lock().unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
        let ran = self.tools.executed_calls.lock().unwrap();
        for (key, name, args) in &ran[self.checked_count..] {
            assert!(self.executed_keys.insert(key.clone()), "{key} ran twice");
            assert!(self.allowed_keys.contains(key), "{key} ran and nothing allows it");
            assert!(self.started_keys.contains(key), "{key} ran without a `tool_started` event");
            assert!(!self.is_dry, "{key} ran in a dry run");
            assert!(name != "out", "it runs elsewhere");
            match self.verdicts.get(key) {
                Some((call, Verdict::Approve)) => {
                    let text = match &*call.arguments {
                        "" => "{}",
                        text => text,
                    };
                    // A deterministic repair by a hook is part of what was approved.
                    let judged: Value = serde_json::from_str(text).unwrap();
                    assert_eq!(judged, *args, "{key} was approved with other arguments");
                }
                Some((_, verdict)) => panic!("{key} ran with {verdict:?}"),
                None => assert!(name != "ask", "{key} ran without an approval"),
            }
        }
        self.checked_count = ran.len();
    }

    pub(crate) fn check_end(
        &self,
        outcome: &Outcome,
        handle: &RunHandle,
        folded: &Journal,
        given: usize,
        ran_before: usize,
    ) {
        let history = handle.history();
        assert_eq!(outcome.history, history);
        assert_eq!(outcome.usage, handle.usage());
        assert_eq!(*outcome.nested_usage, folded.nested_usage());
        assert_eq!(outcome.new_items(), folded.new_items());
        let read = folded.outcome(outcome.reason, None);
        assert_eq!((&outcome.text, outcome.turns), (&read.text, read.turns));
        assert_eq!(outcome.evidence, read.evidence);
        assert_eq!(outcome.partial, read.partial);
        let ids = |calls: &[PendingCall]| {
            let at = |call: &PendingCall| (call.path.clone(), call.call_id.clone());
            let mut ids: Vec<_> = calls.iter().map(at).collect();
            ids.sort();
            ids
        };
        assert_eq!(ids(&outcome.pending), ids(&history.pending_calls()), "{:?}", outcome.reason);
        assert_eq!(outcome.reason == EndReason::Pending, !outcome.pending.is_empty());
        if history.iter().all(|item| !item.interrupted) {
            assert_eq!(history.is_settled(), outcome.pending.is_empty(), "{:?}", outcome.reason);
        }
        for call in &outcome.pending {
            let key = super::driver::idempotency_key(history.id(), call);
            let is_new = self.verdicts.get(&key).filter(|(judged, _)| judged == call);
            assert!(is_new.is_none(), "{key} has its verdict and is pending");
        }
        if self.agent.toolkit().is_first_call_only() {
            let mut turns = HashSet::new();
            for (key, ..) in &self.tools.executed_calls.lock().unwrap()[ran_before..] {
                let (run, call_id) = key.rsplit_once('/').unwrap();
                if run != history.id() {
                    continue;
                }
                let turn = history
                    .iter()
                    .position(|it| it.as_tool_call().is_some_and(|it| it.call_id == call_id));
                let Some(turn) = turn else { continue };
                let first = (0..turn).rev().find(|at| {
                    history.iter().nth(*at).is_some_and(|it| it.as_tool_call().is_none())
                });
                assert!(turns.insert(first), "two actions in a turn");
            }
        }
        let line = serde_json::to_string(&Event::Finished(Box::new(outcome.clone()))).unwrap();
        let read: Event = serde_json::from_str(&line).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), line);
        let told = |text: &str| {
            let is_it = |item: &&Item| item.as_user().is_some_and(|it| it.text() == text);
            outcome.new_items().iter().filter(is_it).count()
        };
        if !history.iter().any(|item| item.as_user().is_some_and(|it| it.text() == "in short")) {
            let heard = told("Look here.") + told("And then?");
            assert_eq!(
                heard + outcome.undelivered.len(),
                given,
                "all input is delivered or returned"
            );
        }
    }
}
