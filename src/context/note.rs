//! What a compaction leaves in a history: that there was one, and whose usage is stale since.

use std::sync::Arc;

use serde_json::json;

use crate::context::Compaction;
use crate::item::{History, Item, ItemKind, Mark, ProviderData};

/// What stands behind what was replaced, where nothing else can carry the record.
const NOTE: &str = "The conversation up to here was shortened to fit the context window.";
/// Whose data the record is: no wire's, so that none of it is sent.
const PROVIDER: &str = "turnstream";
/// What a note is called that a request which did not fit has left.
const REACTIVE: &str = "reactive";
/// What any other record is called.
const RECORDED: &str = "recorded";

/// The same compaction with a note behind what it replaces, by which [`was_compacted`] knows that
/// this history was compacted because it did not fit. The note is also a [record](recorded).
///
/// The note is a user's item, which every wire takes between any two turns. It never stands inside
/// a turn or between a call and its result: the range is widened to the next place where it may.
pub fn reactive(compaction: Compaction, history: &History) -> Compaction {
    with_note(compaction, history, REACTIVE)
}

/// The same compaction with a record of how many completed turns stand behind what it replaces: what
/// a provider has counted in these is no longer what the history has, and [`estimate`] leaves it
/// out.
///
/// [`estimate`]: crate::context::estimate()
///
/// The record is carried by an item that comes in marked `compacted`, as a summary does or a clipped
/// result; nothing of it is sent. Where no item can carry it, it is a note as [`reactive`] leaves
/// one, which is not taken for one of these. The note of an earlier reactive compaction is never
/// lost: where its place is replaced, it comes behind.
pub fn recorded(mut compaction: Compaction, history: &History) -> Compaction {
    if loses_note(&compaction, history) {
        return keeping_note(compaction, history);
    }
    let Some(at) = compaction.items.iter().rposition(can_carry) else {
        return with_note(compaction, history, RECORDED);
    };
    let stale = turns(compaction.items.iter().skip(at + 1)) + turns_behind(&compaction, history);
    if let Some(item) = compaction.items.get_mut(at) {
        item.provider_data = Some(data(RECORDED, stale));
    }
    compaction
}

/// The same compaction; if it replaces the note of an earlier [reactive] compaction, with that note
/// after what it puts in its place. Without the note the history could be compacted reactively again.
pub(crate) fn keeping_note(compaction: Compaction, history: &History) -> Compaction {
    match loses_note(&compaction, history) {
        true => with_note(compaction, history, REACTIVE),
        false => compaction,
    }
}

/// Whether the history holds the note of a [reactive] compaction.
pub fn was_compacted(history: &History) -> bool {
    history.holds_compacted() && history.newest_first().any(is_reactive)
}

/// How many of the newest completed turns came behind every compaction. Only their usage counts what
/// the history has.
///
/// In a history that was made shorter without a record nobody knows, and it is none.
pub(super) fn fresh_turns(history: &History) -> usize {
    if !history.holds_compacted() {
        return history.completed_turns();
    }
    let (mut behind, mut fresh) = (0_usize, None);
    for item in history.newest_first() {
        if let Some(stale) = stale_turns(item) {
            let since = behind.saturating_sub(stale);
            fresh = Some(fresh.map_or(since, |fresh: usize| fresh.min(since)));
        }
        behind += usize::from(item.turn.is_some());
    }
    fresh.unwrap_or(0)
}

fn with_note(mut compaction: Compaction, history: &History, word: &str) -> Compaction {
    let items: Vec<&Item> = history.iter().collect();
    let live = |item: &&Item| !item.tombstone;
    loop {
        let kept = items.iter().copied().take(compaction.from);
        let before = kept.chain(&compaction.items).rfind(live);
        let behind = items.get(compaction.to..).unwrap_or_default();
        if may_stand_between(before, behind.iter().copied().find(live)) {
            break;
        }
        compaction.items.extend(behind.first().map(|item| (*item).clone()));
        compaction.to += 1;
    }
    let stale = turns_behind(&compaction, history);
    let note = Item { provider_data: Some(data(word, stale)), ..Item::user(NOTE) };
    compaction.items.push(note.marked(Mark::Compacted));
    compaction
}

/// Whether what is between these two is a boundary of turns.
fn may_stand_between(before: Option<&Item>, behind: Option<&Item>) -> bool {
    let (Some(before), Some(behind)) = (before, behind) else { return true };
    let is_outside =
        |item: &Item| matches!(item.kind, ItemKind::User { .. } | ItemKind::System { .. });
    let ends = before.turn.is_some() || before.as_tool_result().is_some() || is_outside(before);
    behind.as_tool_result().is_none() && (ends || is_outside(behind))
}

/// Whether notes are replaced, and none of them comes back or stays.
fn loses_note(compaction: &Compaction, history: &History) -> bool {
    let is_replaced = |at: usize| (compaction.from..compaction.to).contains(&at);
    let kept = history.iter().enumerate().filter(|(at, _)| !is_replaced(*at));
    was_compacted(history) && !kept.map(|(_, item)| item).chain(&compaction.items).any(is_reactive)
}

/// How many completed turns stand behind what is replaced.
fn turns_behind(compaction: &Compaction, history: &History) -> usize {
    turns(history.iter().skip(compaction.to))
}

fn turns<'a>(items: impl Iterator<Item = &'a Item>) -> usize {
    items.filter(|item| item.turn.is_some()).count()
}

/// Whether there is room for a record on it: what a provider keeps there must stay.
fn can_carry(item: &Item) -> bool {
    let is_own = |data: &Arc<ProviderData>| data.provider == PROVIDER;
    let is_free = item.provider_data.as_ref().is_none_or(is_own) && !is_reactive(item);
    let may = match item.kind {
        ItemKind::User { .. }
        | ItemKind::Reasoning { .. }
        | ItemKind::ToolCall(_)
        | ItemKind::ToolResult(_) => true,
        ItemKind::System { .. } | ItemKind::Text { .. } | ItemKind::Other => false,
    };
    item.compacted && !item.tombstone && is_free && may
}

fn data(word: &str, stale_turns: usize) -> Arc<ProviderData> {
    Arc::new(ProviderData {
        provider: PROVIDER.to_owned(),
        model: String::new(),
        value: json!({ "compaction": word, "stale_turns": stale_turns }).into(),
    })
}

/// How many completed turns stood behind it when it came, where it carries a record. A note without
/// a number says that of all.
fn stale_turns(item: &Item) -> Option<usize> {
    let data = item.provider_data.as_ref().filter(|data| data.provider == PROVIDER)?;
    let value = data.value.to_value();
    if !item.compacted || value["compaction"].is_null() {
        return None;
    }
    let stale = value["stale_turns"].as_u64().and_then(|turns| usize::try_from(turns).ok());
    Some(stale.unwrap_or(usize::MAX))
}

fn is_reactive(item: &Item) -> bool {
    let Some(data) = &item.provider_data else { return false };
    item.compacted && data.provider == PROVIDER && data.value.to_value()["compaction"] == REACTIVE
}
