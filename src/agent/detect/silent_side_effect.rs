//! Detects a tool call that makes a change without reporting it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::agent::detect::detection_input::{DetectionInput, Finding, result_side_effects};
use crate::item::ResultKind;
use crate::lock::lock_ignoring_poison;

/// Detects tool calls that make a change without reporting it. Nothing is detected until the
/// detector is configured with tools or a snapshot function.
#[derive(Clone, Default)]
pub struct SilentSideEffect {
    /// The names of tools that make a change on every call. If a successful call to such a tool
    /// records neither a side effect nor evidence, a problem is reported once per run and tool.
    pub mutating_tools: Vec<String>,
    /// A function that returns a fingerprint of the environment, such as a hash of the sizes and
    /// modification times of files. A problem is reported if the fingerprint has changed after a
    /// turn's calls, but none of the calls has recorded a side effect. A series of consecutive
    /// turns with unreported changes is reported only once.
    ///
    /// The function runs within a poll of the run, after each turn, so it must return quickly. The
    /// detector cannot determine which program caused a change, so other programs should not change
    /// the environment that the fingerprint covers.
    pub snapshot: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
    /// The latest snapshot for each history id, and whether the iteration before the snapshot
    /// contained an unreported change.
    last_snapshots: Arc<Mutex<HashMap<String, (u64, bool)>>>,
}

impl SilentSideEffect {
    pub(super) fn detect(&self, seen: &DetectionInput<'_>) -> Option<Finding> {
        let changed = self.has_silent_change(seen);
        let (newest, earlier) = seen.newest_and_earlier_iterations()?;
        let is_silent = |tool: &str, kind, is_empty: bool| {
            kind == ResultKind::Ok
                && is_empty
                && self.mutating_tools.iter().any(|name| name == tool)
        };
        let declared = newest.calls.iter().find(|(call, result)| {
            let mut before = earlier.iter().flat_map(|iteration| &iteration.calls);
            is_silent(&call.name, result.kind, result.report.is_none())
                && !before.any(|(other, result)| {
                    other.name == call.name
                        && is_silent(&other.name, result.kind, result.report.is_none())
                })
        });
        if let Some((call, _)) = declared {
            let what = format!("`{}` changes things and did not report a change", call.name);
            return Some(Finding::for_call(call, what));
        }
        let tools: Vec<_> =
            newest.calls.iter().map(|(call, _)| format!("`{}`", call.name)).collect();
        changed.then(|| Finding {
            call_id: match &newest.calls[..] {
                [(call, _)] => Some(call.call_id.clone()),
                _ => None,
            },
            message: format!(
                "something changed during {}, and no change was reported",
                tools.join(", ")
            ),
        })
    }

    /// Returns whether the latest iteration is the first in a series of iterations with unreported
    /// changes.
    fn has_silent_change(&self, seen: &DetectionInput<'_>) -> bool {
        let Some(snapshot) = &self.snapshot else { return false };
        let now = snapshot();
        let mut last = lock_ignoring_poison(&self.last_snapshots);
        let before = last.get(seen.state.history.id()).copied();
        let is_silent = match (before, seen.newest_and_earlier_iterations()) {
            (Some((before, _)), Some((newest, _))) => {
                let is_reported =
                    newest.calls.iter().any(|(_, result)| !result_side_effects(result).is_empty());
                before != now && !is_reported
            }
            (Some(_) | None, _) => false,
        };
        last.insert(seen.state.history.id().to_owned(), (now, is_silent));
        is_silent && !before.is_some_and(|(_, was_silent)| was_silent)
    }

    pub(super) fn forget_history(&self, history_id: &str) {
        lock_ignoring_poison(&self.last_snapshots).remove(history_id);
    }
}

impl_debug!(SilentSideEffect(it), mutating_tools = it.mutating_tools);
