//! Functions that find the items at which turns start.

use crate::item::{Item, ItemKind};

/// Returns the index at which the newest `turns` turns start, or 0 if the history has fewer turns.
/// User messages directly before a turn belong to that turn.
///
/// The index is never between a call and its result, because results follow the turn that contains
/// their calls.
pub(super) fn start_of_newest_turns(items: &[&Item], turns: usize) -> usize {
    turn_starts_newest_first(items).nth(turns.saturating_sub(1)).unwrap_or(0)
}

/// Returns the index at which each turn starts, with the newest turn first.
/// [`start_of_newest_turns`] defines where a turn starts.
pub(super) fn turn_starts_newest_first<'a>(items: &'a [&Item]) -> impl Iterator<Item = usize> + 'a {
    let mut starts = Vec::new();
    let mut before: Option<&Item> = None;
    for (at, item) in items.iter().enumerate().filter(|(_, item)| !item.tombstone) {
        let ended = before.is_none_or(|it| it.turn.is_some() || !it.is_model_output());
        if item.is_model_output() && ended {
            starts.push(at);
        }
        before = Some(item);
    }
    starts.into_iter().rev().map(|start| {
        let before = items.iter().take(start).rev().enumerate();
        let prompts = before.take_while(|(_, item)| item.tombstone || item.is_prompt());
        let first = prompts.filter(|(_, item)| item.is_prompt()).last();
        first.map_or(start, |(n, _)| start - n - 1)
    })
}

/// Returns the items of the user's latest message, which may consist of several consecutive items.
/// Summaries and notes do not count as messages from the user.
pub(super) fn newest_prompt<'a>(items: &[&'a Item]) -> Vec<&'a Item> {
    let Some(end) = items.iter().rposition(|item| item.is_prompt()) else { return Vec::new() };
    let live = items.iter().take(end + 1).rev().copied().filter(|item| !item.tombstone);
    let mut prompt: Vec<&Item> = live.take_while(|item| item.is_prompt()).collect();
    prompt.reverse();
    prompt
}

pub(super) fn is_system_item(item: &Item) -> bool {
    matches!(item.kind, ItemKind::System { .. })
}

/// The items to keep from a range that is otherwise removed: the system items, and the user's
/// latest message if it is in the range.
pub(super) struct KeptItems {
    pub(super) instructions: Vec<Item>,
    pub(super) prompt: Vec<Item>,
}

impl KeptItems {
    /// Collects the items to keep from the items before the index `cut`.
    pub(super) fn new(items: &[&Item], cut: usize) -> Self {
        let (old, new) = items.split_at(cut.min(items.len()));
        let owned = |items: Vec<&Item>| items.into_iter().cloned().collect();
        let is_live_system = |item: &&Item| is_system_item(item) && !item.tombstone;
        let has_prompt = new.iter().any(|item| item.is_prompt());
        Self {
            instructions: old.iter().copied().filter(is_live_system).cloned().collect(),
            prompt: if has_prompt { Vec::new() } else { owned(newest_prompt(old)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ItemFlag;

    #[test]
    fn a_tombstoned_item_neither_splits_a_prompt_nor_belongs_to_one() {
        let void = || Item::user("void").with_flag(ItemFlag::Tombstone);
        let items = [void(), Item::user("a"), void(), Item::user("b"), Item::text("c"), void()];
        let items: Vec<&Item> = items.iter().collect();
        let prompts: Vec<_> = newest_prompt(&items).into_iter().filter_map(Item::as_user).collect();
        assert_eq!(prompts, [&"a".into(), &"b".into()]);
        assert_eq!(start_of_newest_turns(&items, 1), 1);
    }
}
