//! The record that a compaction leaves in a history. The record shows that the history was
//! compacted, and states for which turns the reported usage is stale.

use std::sync::Arc;

use serde_json::json;

use crate::item::{History, Item, ItemKind, ProviderData};

/// The provider name in a compaction record. No wire format has this name, so a record is never
/// sent.
const RECORD_PROVIDER: &str = "turnstream";
/// The kind of record in the note that is added when a history is compacted because a request did
/// not fit in the context window.
pub(super) const REACTIVE_RECORD_KIND: &str = "reactive";
/// The kind of every compaction record except for those in notes from reactive compactions.
pub(super) const STALE_USAGE_RECORD_KIND: &str = "recorded";

/// Returns whether the history contains a note that marks a
/// [reactive](crate::context::mark_reactive_compaction) compaction. An agent then does not compact
/// the history reactively again: a request that still does not fit into the context window is sent
/// to the next [fallback](crate::Agent::with_fallback), if any, and otherwise ends the run with the
/// reason `context_window`.
pub fn was_reactively_compacted(history: &History) -> bool {
    history.has_compacted_items() && history.newest_first().any(is_reactive_note)
}

/// Returns the number of turns that have been completed since the last compaction. The usage
/// reported for earlier turns does not match the history.
///
/// Returns 0 if the history was compacted without a record.
pub(super) fn turns_since_compaction(history: &History) -> usize {
    if !history.has_compacted_items() {
        return history.completed_turns();
    }
    let (mut behind, mut fresh) = (0_usize, None);
    for item in history.newest_first() {
        if let Some(stale) = recorded_stale_turns(item) {
            let since = behind.saturating_sub(stale);
            fresh = Some(fresh.map_or(since, |fresh: usize| fresh.min(since)));
        }
        behind += usize::from(item.turn.is_some());
    }
    fresh.unwrap_or(0)
}

/// Counts the items that end a completed turn.
pub(super) fn completed_turns<'a>(items: impl Iterator<Item = &'a Item>) -> usize {
    items.filter(|item| item.turn.is_some()).count()
}

/// Returns whether the item can carry a record. An item with data from a provider cannot carry a
/// record, because the provider's data must be kept.
pub(super) fn can_carry_record(item: &Item) -> bool {
    let is_own = |data: &Arc<ProviderData>| data.provider == RECORD_PROVIDER;
    let is_free = item.provider_data.as_ref().is_none_or(is_own) && !is_reactive_note(item);
    let may = match item.kind {
        ItemKind::User { .. }
        | ItemKind::Reasoning { .. }
        | ItemKind::ToolCall(_)
        | ItemKind::ToolResult(_) => true,
        ItemKind::System { .. } | ItemKind::Text { .. } | ItemKind::Other => false,
    };
    item.compacted && !item.tombstone && is_free && may
}

/// Creates a record in the form of provider data for an item.
pub(super) fn compaction_record(word: &str, stale_turns: usize) -> Arc<ProviderData> {
    Arc::new(ProviderData {
        provider: RECORD_PROVIDER.to_owned(),
        model: String::new(),
        value: json!({ "compaction": word, "stale_turns": stale_turns }).into(),
    })
}

/// Returns the number of completed turns that followed this item when its record was created, or
/// `None` if the item carries no record. Returns `usize::MAX` if the record contains no number,
/// since the usage of all turns is stale in that case.
fn recorded_stale_turns(item: &Item) -> Option<usize> {
    let data = item.provider_data.as_ref().filter(|data| data.provider == RECORD_PROVIDER)?;
    let value = data.value.to_value();
    if !item.compacted || value["compaction"].is_null() {
        return None;
    }
    let stale = value["stale_turns"].as_u64().and_then(|turns| usize::try_from(turns).ok());
    Some(stale.unwrap_or(usize::MAX))
}

/// Returns whether the item is a note that marks a reactive compaction.
pub(super) fn is_reactive_note(item: &Item) -> bool {
    let Some(data) = &item.provider_data else { return false };
    item.compacted
        && data.provider == RECORD_PROVIDER
        && data.value.to_value()["compaction"] == REACTIVE_RECORD_KIND
}
