//! A log of the tool results that report changes or checks during a run.

use std::sync::Arc;

use crate::item::{EffectReport, Item, RawJson, ResultKind, SideEffect, ToolCall, ToolResult};
use crate::tool::InnerToolNames;

/// Records, in order, the tool results that report changes or checks during a run. Cheap to clone.
///
/// The log is separate from the history. Results are added to the log as they arrive, so compacting
/// the history does not remove entries from the log.
///
/// ```
/// use turnstream::agent::evidence::{EvidenceLog, EvidenceVerdict, RequireEvidence};
/// use turnstream::Item;
/// use turnstream::item::{Evidence, RawJson, EffectReport, ResultKind, SideEffect, ToolCall, ToolResult};
///
/// let result = |id: &str, report| {
///     let call = ToolCall { call_id: id.into(), name: "t".into(), arguments: "{}".into() };
///     let result = ToolResult::for_call(&call, ResultKind::Ok, "done").with_report(report);
///     [Item::tool_call(&call.call_id, "t", "{}"), Item::tool_result(result)]
/// };
/// let edit = EffectReport { side_effects: vec![SideEffect::of_change("a.rs")], ..EffectReport::default() };
/// let passed = Evidence::from_command("cargo test", 0);
/// let check = EffectReport { evidence: vec![RawJson::new(&passed)?], ..EffectReport::default() };
///
/// let (edit, check) = (result("c1", edit), result("c2", check));
/// let policy = RequireEvidence::default();
/// let log = EvidenceLog::from_items(&edit);
/// assert!(matches!(policy.verdict(&log), EvidenceVerdict::Unproven(_)));
/// let log = EvidenceLog::from_items(edit.iter().chain(&check));
/// assert_eq!(policy.verdict(&log), EvidenceVerdict::Proven(passed));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvidenceLog {
    entries: Arc<Vec<EvidenceEntry>>,
    batch_count: u32,
}

/// A tool result that reports changes or checks, or whose effects are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvidenceEntry {
    /// The id of the tool call that produced the result.
    pub call_id: String,
    /// The name of the tool.
    pub tool: String,
    /// The kind of result.
    pub kind: ResultKind,
    /// The side effects and evidence that the tool recorded.
    pub report: Option<Arc<EffectReport>>,
    /// The number of the batch that this result's call belongs to. The order of calls within a
    /// batch is unknown.
    pub batch: u32,
}

impl EvidenceLog {
    /// Creates a log from the tool results among `items`. Consecutive results form one batch.
    ///
    /// A summary that replaced results counts as a change, since the replaced results may have
    /// reported a change.
    pub fn from_items<'a>(items: impl IntoIterator<Item = &'a Item>) -> Self {
        let mut standing = Self::default();
        let mut batch = Vec::new();
        let mut names = InnerToolNames::default();
        for item in items.into_iter().filter(|item| !item.tombstone) {
            match names.next_result(item) {
                Some(result) => batch.push(result.into_owned()),
                None => standing.record_batch(&std::mem::take(&mut batch)),
            }
            if item.compacted && item.as_user().is_some() {
                standing.record_batch(&[compaction_placeholder_result()]);
            }
        }
        standing.record_batch(&batch);
        standing
    }

    /// Records the results of one batch of calls.
    pub(in crate::agent) fn record_batch(&mut self, results: &[ToolResult]) {
        if results.is_empty() {
            return;
        }
        self.batch_count += 1;
        for result in results.iter().filter(|result| has_relevant_effects(result)) {
            Arc::make_mut(&mut self.entries).push(EvidenceEntry {
                call_id: result.call_id.clone(),
                tool: result.name.clone(),
                kind: result.kind,
                report: result.report.clone(),
                batch: self.batch_count,
            });
        }
    }

    /// Returns the log's entries, in the order of the results. A result has an entry if it has a
    /// [report](crate::item::ToolResult::report), or if its call may have had effects that were not
    /// reported, for example because it timed out.
    pub fn entries(&self) -> &[EvidenceEntry] {
        &self.entries
    }
}

/// Creates a placeholder result for the calls that a summary replaced.
fn compaction_placeholder_result() -> ToolResult {
    let target = "something in the summarized part of the history".to_owned();
    let effect = SideEffect { kind: "forgotten".to_owned(), target };
    let call = ToolCall {
        call_id: String::new(),
        name: "compaction".to_owned(),
        arguments: String::new(),
    };
    ToolResult::for_call(&call, ResultKind::Ok, "")
        .with_report(EffectReport { side_effects: vec![effect], ..EffectReport::default() })
}

fn has_relevant_effects(result: &ToolResult) -> bool {
    result.report.is_some() || has_unknown_effects(result.kind)
}

/// Returns whether a call with this kind of result may have had effects that the result does not
/// report.
pub(in crate::agent) fn has_unknown_effects(kind: ResultKind) -> bool {
    match kind {
        ResultKind::Timeout | ResultKind::Panic | ResultKind::Interrupted => true,
        ResultKind::Ok
        | ResultKind::AlreadyExists
        | ResultKind::Error
        | ResultKind::InvalidArguments
        | ResultKind::UnknownTool
        | ResultKind::Denied
        | ResultKind::Truncated
        | ResultKind::Budget
        | ResultKind::Skipped => false,
    }
}

impl EvidenceEntry {
    /// Returns the changes that the result reports.
    pub(crate) fn side_effects(&self) -> &[SideEffect] {
        self.report.as_deref().map_or(&[], |report| &report.side_effects)
    }

    /// Returns the evidence that the result contains.
    pub(crate) fn evidence(&self) -> &[RawJson] {
        self.report.as_deref().map_or(&[], |report| &report.evidence)
    }

    /// Returns whether the call was interrupted, timed out or panicked, so that it may have had
    /// effects that its result does not report.
    pub(crate) fn has_unknown_effects(&self) -> bool {
        has_unknown_effects(self.kind)
    }
}
