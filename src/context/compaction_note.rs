//! Adds the note or record that a compaction leaves in a history.

use crate::context::Compaction;
use crate::context::compaction_record::{
    REACTIVE_RECORD_KIND, STALE_USAGE_RECORD_KIND, can_carry_record, compaction_record,
    completed_turns, is_reactive_note, was_reactively_compacted,
};
use crate::item::{History, Item, ItemFlag, ItemKind};

/// The text of the note that a compaction adds to the history.
const COMPACTION_NOTE_TEXT: &str =
    "The conversation up to here was shortened to fit the context window.";
/// Adds a note after the replaced items to mark a reactive compaction, that is, a compaction made
/// because a request did not fit in the context window. [`was_reactively_compacted`] looks for this
/// note. The note also contains the record that [`record_stale_usage`] adds to a compaction that is
/// not reactive.
///
/// The note is a user item, which every wire format accepts between any two turns. The note is
/// never placed inside a turn or between a call and its result, because the compaction's range is
/// extended to the next turn boundary.
pub fn mark_reactive_compaction(compaction: Compaction, history: &History) -> Compaction {
    append_compaction_note(compaction, history, REACTIVE_RECORD_KIND)
}

/// Adds a record that states how many completed turns follow the item that carries the record. The
/// usage that providers reported for these turns no longer matches the history, so the token
/// [`estimate`] ignores this usage.
///
/// [`estimate`]: crate::context::estimate_request_tokens()
///
/// A replacement item that is marked `compacted`, such as a summary or a truncated result, carries
/// the record. The record is never sent to a provider. If no item can carry the record, a note is
/// added at the position that [`mark_reactive_compaction`] uses; such a note does not mark a
/// reactive compaction. If the compaction replaces the note of an earlier reactive compaction,
/// the note is added again after the replacement items.
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

/// If the compaction would remove the note from an earlier reactive compaction, adds the note again
/// after the replacement items. Without the note, the history could be compacted reactively again.
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
        let retained = items.iter().copied().take(compaction.from);
        let before = retained.chain(&compaction.items).rfind(live);
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
    compaction.items.push(note.with_flag(ItemFlag::Compacted));
    compaction
}

/// Returns whether there is a turn boundary between two adjacent items.
fn is_turn_boundary(before: Option<&Item>, behind: Option<&Item>) -> bool {
    let (Some(before), Some(behind)) = (before, behind) else { return true };
    let is_outside =
        |item: &Item| matches!(item.kind, ItemKind::User { .. } | ItemKind::System { .. });
    let ends = before.turn.is_some() || before.as_tool_result().is_some() || is_outside(before);
    behind.as_tool_result().is_none() && (ends || is_outside(behind))
}

/// Returns whether the compaction would remove all notes in the history that mark a reactive
/// compaction.
fn drops_reactive_note(compaction: &Compaction, history: &History) -> bool {
    let is_replaced = |at: usize| (compaction.from..compaction.to).contains(&at);
    let retained = history.iter().enumerate().filter(|(at, _)| !is_replaced(*at));
    was_reactively_compacted(history)
        && !retained.map(|(_, item)| item).chain(&compaction.items).any(is_reactive_note)
}

/// Returns the number of completed turns after the replaced items.
fn completed_turns_after(compaction: &Compaction, history: &History) -> usize {
    completed_turns(history.iter().skip(compaction.to))
}
