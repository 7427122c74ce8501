//! The same compaction with what it leaves in a history.

use crate::context::Compaction;
use crate::context::compaction_record::{
    REACTIVE_RECORD_KIND, STALE_USAGE_RECORD_KIND, can_carry_record, compaction_record,
    completed_turns, is_reactive_note, was_reactively_compacted,
};
use crate::item::{History, Item, ItemKind, Mark};

/// What stands behind what was replaced, where nothing else can carry the record.
const COMPACTION_NOTE_TEXT: &str =
    "The conversation up to here was shortened to fit the context window.";
/// The same compaction with a note behind what it replaces, by which [`was_reactively_compacted`] knows that
/// this history was compacted because it did not fit. The note is also a [record](record_stale_usage).
///
/// The note is a user's item, which every wire takes between any two turns. It never stands inside
/// a turn or between a call and its result: the range is widened to the next place where it may.
pub fn mark_reactive_compaction(compaction: Compaction, history: &History) -> Compaction {
    append_compaction_note(compaction, history, REACTIVE_RECORD_KIND)
}

/// The same compaction with a record of how many completed turns stand behind what it replaces: what
/// a provider has counted in these is no longer what the history has, and [`estimate`] leaves it
/// out.
///
/// [`estimate`]: crate::context::estimate_request_tokens()
///
/// The record is carried by an item that comes in marked `compacted`, as a summary does or a clipped
/// result; nothing of it is sent. Where no item can carry it, it is a note as [`mark_reactive_compaction`] leaves
/// one, which is not taken for one of these. The note of an earlier reactive compaction is never
/// lost: where its place is replaced, it comes behind.
pub fn record_stale_usage(mut compaction: Compaction, history: &History) -> Compaction {
    if drops_reactive_note(&compaction, history) {
        return preserve_reactive_note(compaction, history);
    }
    let Some(at) = compaction.items.iter().rposition(can_carry_record) else {
        return append_compaction_note(compaction, history, STALE_USAGE_RECORD_KIND);
    };
    let stale = completed_turns(compaction.items.iter().skip(at + 1))
        + completed_turns_after(&compaction, history);
    if let Some(item) = compaction.items.get_mut(at) {
        item.provider_data = Some(compaction_record(STALE_USAGE_RECORD_KIND, stale));
    }
    compaction
}

/// The same compaction; if it replaces the note of an earlier [reactive] compaction, with that note
/// after what it puts in its place. Without the note the history could be compacted reactively again.
pub(crate) fn preserve_reactive_note(compaction: Compaction, history: &History) -> Compaction {
    match drops_reactive_note(&compaction, history) {
        true => append_compaction_note(compaction, history, REACTIVE_RECORD_KIND),
        false => compaction,
    }
}

fn append_compaction_note(mut compaction: Compaction, history: &History, word: &str) -> Compaction {
    let items: Vec<&Item> = history.iter().collect();
    let live = |item: &&Item| !item.tombstone;
    loop {
        let kept = items.iter().copied().take(compaction.from);
        let before = kept.chain(&compaction.items).rfind(live);
        let behind = items.get(compaction.to..).unwrap_or_default();
        if is_turn_boundary(before, behind.iter().copied().find(live)) {
            break;
        }
        compaction.items.extend(behind.first().map(|item| (*item).clone()));
        compaction.to += 1;
    }
    let stale = completed_turns_after(&compaction, history);
    let note = Item {
        provider_data: Some(compaction_record(word, stale)),
        ..Item::user(COMPACTION_NOTE_TEXT)
    };
    compaction.items.push(note.with_mark(Mark::Compacted));
    compaction
}

/// Whether what is between these two is a boundary of turns.
fn is_turn_boundary(before: Option<&Item>, behind: Option<&Item>) -> bool {
    let (Some(before), Some(behind)) = (before, behind) else { return true };
    let is_outside =
        |item: &Item| matches!(item.kind, ItemKind::User { .. } | ItemKind::System { .. });
    let ends = before.turn.is_some() || before.as_tool_result().is_some() || is_outside(before);
    behind.as_tool_result().is_none() && (ends || is_outside(behind))
}

/// Whether notes are replaced, and none of them comes back or stays.
fn drops_reactive_note(compaction: &Compaction, history: &History) -> bool {
    let is_replaced = |at: usize| (compaction.from..compaction.to).contains(&at);
    let kept = history.iter().enumerate().filter(|(at, _)| !is_replaced(*at));
    was_reactively_compacted(history)
        && !kept.map(|(_, item)| item).chain(&compaction.items).any(is_reactive_note)
}

/// How many completed turns stand behind what is replaced.
fn completed_turns_after(compaction: &Compaction, history: &History) -> usize {
    completed_turns(history.iter().skip(compaction.to))
}
