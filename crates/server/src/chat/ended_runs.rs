//! How the runs of a session have ended, and what their sub-agents did, for a page that is loaded
//! later.
//!
//! A session stores neither. A process that performs a run observes them; for other runs, the
//! session's entries tell most of how they ended.

use serde::Serialize;
use serde_json::{Value, json};
use turnstream::event::{EndReason, InterruptedPhase, Outcome, RewriteReason};
use turnstream::item::{Item, ItemKind, ResultKind, StopReason};
use turnstream::session::Entry;
use turnstream::{Error, Usage};

/// A run that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedRun {
    /// The number of the session's entries when the run started.
    pub(crate) starts_at: u64,
    /// The number of the session's entries when the run ended.
    pub(crate) ends_at: u64,
    pub(crate) outcome: RunSummary,
    /// The events of sub-agents that a page shows.
    pub(crate) nested: Vec<Value>,
}

/// The part of an outcome that a page shows.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RunSummary {
    /// Why the run ended, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    turns: u32,
    usage: Usage,
    nested_usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nested_cost: Option<u64>,
}

impl From<&Outcome> for RunSummary {
    fn from(outcome: &Outcome) -> Self {
        Self {
            reason: Some(outcome.reason.to_string()),
            why: outcome.why.clone(),
            error: outcome.error.clone(),
            turns: outcome.turns,
            usage: outcome.usage,
            nested_usage: *outcome.nested_usage,
            cost: outcome.cost,
            nested_cost: outcome.nested_cost,
        }
    }
}

/// An item without provider data.
pub(crate) fn shown_item(item: &Item) -> Value {
    match item.kind {
        ItemKind::Other => json!({ "type": "other" }),
        _ => json!(Item { provider_data: None, ..item.clone() }),
    }
}

/// The runs that a session's entries contain, in order. `observed` are those that this process has
/// performed; the others are derived from the entries.
pub(crate) fn ended_runs(entries: &[Entry], observed: &[EndedRun]) -> Vec<EndedRun> {
    let mut runs = RunsInEntries::default();
    for (entry, number) in entries.iter().zip(0..) {
        runs.add(entry, number);
    }
    let mut runs = runs.finish(entries.len() as u64);
    let is_observed = |run: &EndedRun| {
        observed.iter().any(|it| it.starts_at < run.ends_at && run.ends_at <= it.ends_at)
    };
    runs.retain(|run| !is_observed(run));
    runs.extend_from_slice(observed);
    runs.sort_by_key(|run| run.ends_at);
    runs
}

/// Finds the runs in a session's entries.
#[derive(Default)]
struct RunsInEntries {
    ended: Vec<EndedRun>,
    starts_at: u64,
    turns: u32,
    usage: Usage,
    /// Why the run would have ended if its last entry was the last one that was read.
    reason: Option<EndReason>,
}

impl RunsInEntries {
    fn add(&mut self, entry: &Entry, number: u64) {
        match entry {
            Entry::Item(item) if item.tombstone => {}
            Entry::Item(item) => self.add_item(item, number),
            Entry::Pending { .. } => {
                self.reason = Some(EndReason::Pending);
                self.end_run(number + 1);
            }
            // Another answer follows.
            Entry::Rewritten { why: RewriteReason::Tombstoned, .. } => self.end_run(number),
            _ => {}
        }
    }

    fn add_item(&mut self, item: &Item, number: u64) {
        let interrupted = EndReason::Interrupted(InterruptedPhase::Streaming);
        match &item.kind {
            // A message that was added to a run cannot be distinguished from one that starts a run.
            ItemKind::User { .. } => self.end_run(number),
            ItemKind::ToolResult(result) if result.kind == ResultKind::Interrupted => {
                self.reason = Some(interrupted);
            }
            _ if item.interrupted && self.reason != Some(interrupted) => {
                self.turns += 1;
                self.reason = Some(interrupted);
            }
            _ => {}
        }
        if let Some(turn) = &item.turn {
            self.turns += 1;
            self.usage += turn.usage;
            self.reason = end_reason(&turn.stop_reason);
        }
    }

    fn end_run(&mut self, ends_at: u64) {
        let (reason, turns) = (self.reason.take(), std::mem::take(&mut self.turns));
        let (usage, starts_at) = (std::mem::take(&mut self.usage), self.starts_at);
        self.starts_at = ends_at;
        if turns > 0 {
            let reason = reason.map(|reason| reason.to_string());
            let outcome = RunSummary { reason, turns, usage, ..RunSummary::default() };
            self.ended.push(EndedRun { starts_at, ends_at, outcome, nested: Vec::new() });
        }
    }

    /// Returns the runs. The last one may still be active if its reason is unknown.
    fn finish(mut self, entries: u64) -> Vec<EndedRun> {
        if self.reason.is_some() {
            self.end_run(entries);
        }
        self.ended
    }
}

/// Why a run ends with a turn that has stopped for this reason, if the turn is the last one.
fn end_reason(reason: &StopReason) -> Option<EndReason> {
    match reason {
        StopReason::Stop => Some(EndReason::Completed),
        StopReason::MaxTokens => Some(EndReason::Truncated),
        StopReason::ContentFilter => Some(EndReason::Filtered),
        StopReason::Refusal => Some(EndReason::Refused),
        StopReason::ContextWindow => Some(EndReason::ContextWindow),
        _ => None,
    }
}
