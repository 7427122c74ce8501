//! What counts of the results of a run.

use std::sync::Arc;

use crate::item::{EffectReport, Item, RawJson, ResultKind, SideEffect, ToolCall, ToolResult};
use crate::tool::InnerToolNames;

/// The results of a run that say what it changed and what was checked, in their order. Cheap to
/// clone.
///
/// It is counted beside the history, from the results as they come, so that it knows of them also
/// when they are compacted away.
///
/// ```
/// use turnstream::agent::evidence::{EvidenceLog, EvidenceVerdict};
/// use turnstream::item::{Evidence, RawJson, EffectReport, ResultKind, SideEffect, ToolCall, ToolResult};
///
/// let result = |id: &str, report| {
///     let call = ToolCall { call_id: id.into(), name: "t".into(), arguments: "{}".into() };
///     ToolResult::for_call(&call, ResultKind::Ok, "done").with_report(report)
/// };
/// let edit = EffectReport { side_effects: vec![SideEffect::of_change("a.rs")], ..EffectReport::default() };
/// let passed = Evidence::from_command("cargo test", 0);
/// let check = EffectReport { evidence: vec![RawJson::new(&passed)?], ..EffectReport::default() };
///
/// let mut standing = EvidenceLog::default();
/// standing.record_batch(&[result("c1", edit)]);
/// assert!(matches!(standing.verdict(), EvidenceVerdict::Unproven(_)));
/// standing.record_batch(&[result("c2", check)]);
/// assert_eq!(standing.verdict(), EvidenceVerdict::Proven(passed));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvidenceLog {
    entries: Arc<Vec<EvidenceEntry>>,
    batch_count: u32,
}

/// A result that says what was changed or checked, or that leaves it open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvidenceEntry {
    /// The call that it answers.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// How it came about.
    pub kind: ResultKind,
    /// What the tool has put on record.
    pub report: Option<Arc<EffectReport>>,
    /// Which batch of calls it belongs to. Within one, nobody knows the order.
    pub batch: u32,
}

impl EvidenceLog {
    /// What the results among some items come to. Results with nothing between them are one batch.
    ///
    /// What stands in for results that were folded away may have been a change: nobody knows.
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

    /// Notes the results of one batch of calls.
    pub fn record_batch(&mut self, results: &[ToolResult]) {
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

    /// The results, in their order.
    pub fn entries(&self) -> &[EvidenceEntry] {
        &self.entries
    }
}

/// What is known of the calls that a summary stands in for.
fn compaction_placeholder_result() -> ToolResult {
    let target = "what a summary stands in for".to_owned();
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

/// Whether the tool may have done something that it came not to tell.
pub(in crate::agent) fn has_unknown_effects(kind: ResultKind) -> bool {
    match kind {
        ResultKind::Timeout | ResultKind::Panic | ResultKind::Interrupted => true,
        ResultKind::Ok
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
    /// What it says that was changed.
    pub fn side_effects(&self) -> &[SideEffect] {
        self.report.as_deref().map_or(&[], |report| &report.side_effects)
    }

    /// What it proves, where it does.
    pub fn evidence(&self) -> &[RawJson] {
        self.report.as_deref().map_or(&[], |report| &report.evidence)
    }

    /// Whether it was interrupted, took too long or panicked: it may have changed something that it
    /// came not to tell.
    pub(crate) fn has_unknown_effects(&self) -> bool {
        has_unknown_effects(self.kind)
    }
}
