//! Determines which items must be marked as tombstones together so that the history can still be
//! sent.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::error::{Error, ErrorKind};
use crate::item::settle::{CallResultPairs, pair_calls_with_results};
use crate::item::{History, Item, ItemFlag, ItemKind};

/// A replacement for a range of items in a history, in which some items are marked as tombstones.
///
/// [`History::tombstone_edits`] returns these edits. A `rewritten` event with the reason
/// `tombstoned` contains the same data.
#[derive(Clone, Debug, PartialEq)]
pub struct TombstoneEdit {
    /// The index of the first item in the range.
    pub from: usize,
    /// One past the index of the last item in the range.
    pub to: usize,
    /// The items that replace the range. The number of items equals the length of the range.
    pub items: Vec<Item>,
}

impl TombstoneEdit {
    /// Applies the edit to the history for which it was created. Items keep their positions.
    pub fn apply(&self, history: &mut History) {
        history.rewrite(self.from..self.to, self.items.iter().cloned());
    }
}

impl History {
    /// Returns the edits that mark the items at the given positions (counted from 0) as
    /// [tombstones](Item::tombstone). Tombstones stay in the history but are never sent to a
    /// provider.
    ///
    /// Items that can only be sent together are also marked together:
    ///
    /// - A call is marked together with its result, and a result together with its call. Other
    ///   calls in the same turn are not marked.
    /// - If any item in a turn, such as text or a call, is marked, all reasoning in that turn is
    ///   also marked. Providers sign reasoning together with the items that follow it.
    /// - If a turn contains a [provider-specific item](crate::item::ItemKind::Other), such as a
    ///   search run by the provider, all items in the turn are marked, along with the results of
    ///   its calls.
    ///
    /// User and system items are marked individually. The note left by a compaction can also be
    /// marked, and [`was_reactively_compacted`](crate::context::was_reactively_compacted) still
    /// finds it afterwards. Positions that already contain a tombstone are ignored. A turn's
    /// [metadata](Item::turn), such as its token usage, moves to the last item in the turn that is
    /// not a tombstone.
    ///
    /// The ranges of the edits do not overlap, and after each edit the history can be sent. The
    /// returned list is empty if no items need to change.
    ///
    /// ```
    /// use turnstream::{History, Item};
    ///
    /// let mut history = History::from_items("h", [
    ///     Item::user("My key is 1234."),
    ///     Item::text("Please do not send me keys."),
    ///     Item::user("What is a key?"),
    /// ]);
    /// for edit in history.tombstone_edits([0])? {
    ///     edit.apply(&mut history);
    /// }
    /// assert_eq!(history.len(), 3);
    /// assert!(history.iter().next().unwrap().tombstone);
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`InvalidRequest`](ErrorKind::InvalidRequest) with the invalid
    /// [parameter](Error::parameter): either a position outside the history, or the id of a call
    /// that would be marked while still waiting for its result.
    pub fn tombstone_edits(
        &self,
        positions: impl IntoIterator<Item = usize>,
    ) -> Result<Vec<TombstoneEdit>, Error> {
        let items: Vec<&Item> = self.iter().collect();
        let mut chosen = Vec::new();
        for at in positions {
            let Some(item) = items.get(at) else {
                return Err(position_out_of_range_error(at, items.len()));
            };
            if !item.tombstone {
                chosen.push(at);
            }
        }
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let plan = TombstonePlan {
            turn_ranges: turn_ranges(&items),
            call_result_pairs: pair_calls_with_results(&items),
            items,
        };
        plan.expand_selection(chosen).map(|void| plan.edits(&void))
    }
}

/// Creates the error for a position outside a history of `len` items.
pub(crate) fn position_out_of_range_error(at: usize, len: usize) -> Error {
    let message = format!("there is no item {at}: there are {len}");
    Error::new(ErrorKind::InvalidRequest, message).with_parameter(at.to_string())
}

struct TombstonePlan<'a> {
    items: Vec<&'a Item>,
    /// For each item, the range of the turn that contains the item. The range is empty for items
    /// that the model did not write.
    turn_ranges: Vec<Range<usize>>,
    call_result_pairs: CallResultPairs,
}

impl TombstonePlan<'_> {
    /// Returns the positions to mark: `chosen`, and the positions of all items that must be marked
    /// together with them.
    fn expand_selection(&self, mut chosen: Vec<usize>) -> Result<BTreeSet<usize>, Error> {
        let mut void = BTreeSet::new();
        while let Some(at) = chosen.pop() {
            let item = self.items[at];
            if item.tombstone || !void.insert(at) {
                continue;
            }
            if let Some(call) = item.as_tool_call() {
                match self.call_result_pairs.result_by_call.get(&at) {
                    Some(result) => chosen.push(*result),
                    // A call from an interrupted turn never gets a result.
                    None if item.interrupted => {}
                    None => return Err(open_call_error(&call.call_id)),
                }
            }
            chosen.extend(self.call_result_pairs.call_by_result.get(&at));
            let turn = self.turn_ranges[at].clone();
            let live = |at: &usize| !self.items[*at].tombstone;
            let is_bound =
                turn.clone().filter(live).any(|at| self.items[at].kind == ItemKind::Other);
            let is_reasoning =
                |at: &usize| matches!(self.items[*at].kind, ItemKind::Reasoning { .. });
            chosen.extend(turn.filter(|at| is_bound || is_reasoning(at)));
        }
        Ok(void)
    }

    /// Creates the edits. The range of each edit covers all marked items of a turn, and the marked
    /// results of that turn's calls.
    fn edits(&self, void: &BTreeSet<usize>) -> Vec<TombstoneEdit> {
        let mut changed: BTreeMap<usize, Item> = BTreeMap::new();
        for at in void {
            changed.insert(*at, self.items[*at].clone().with_flag(ItemFlag::Tombstone));
        }
        // The first and the last position of each range.
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for at in void {
            let turn = &self.turn_ranges[*at];
            let partner = self
                .call_result_pairs
                .result_by_call
                .get(at)
                .or_else(|| self.call_result_pairs.call_by_result.get(at));
            let mut reach = vec![*at, *partner.unwrap_or(at)];
            let stays = |at: &usize| !void.contains(at) && !self.items[*at].tombstone;
            if let (Some(info), Some(last)) =
                (&self.items[*at].turn, turn.clone().rev().find(stays))
            {
                // The item at `last` is now the last item of its turn that is not a tombstone.
                changed.insert(last, Item { turn: Some(info.clone()), ..self.items[last].clone() });
                if let Some(item) = changed.get_mut(at) {
                    item.turn = None;
                }
                reach.push(last);
            }
            reach.extend(void.range(turn.clone()).next());
            let (first, last) = (reach.iter().min(), reach.iter().max());
            ranges.extend(first.zip(last).map(|(first, last)| (*first, *last)));
        }
        ranges.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        let item = |at: usize| changed.get(&at).unwrap_or_else(|| self.items[at]).clone();
        let range = |(first, last): (usize, usize)| TombstoneEdit {
            from: first,
            to: last + 1,
            items: (first..=last).map(item).collect(),
        };
        merged.into_iter().map(range).collect()
    }
}

fn open_call_error(call_id: &str) -> Error {
    let message = format!("the call `{call_id}` has no result yet");
    Error::new(ErrorKind::InvalidRequest, message).with_parameter(call_id)
}

/// Returns, for each item, the range of its turn, whether or not the turn was completed.
fn turn_ranges(items: &[&Item]) -> Vec<Range<usize>> {
    let mut turns = Vec::with_capacity(items.len());
    while let Some(first) = items.get(turns.len()) {
        let from = turns.len();
        if !first.is_model_output() {
            turns.push(from..from);
            continue;
        }
        let continues = |pair: &&[&Item]| {
            let (before, item) = (pair[0], pair[1]);
            before.turn.is_none()
                && item.is_model_output()
                && before.interrupted == item.interrupted
        };
        let more = items[from..].windows(2).take_while(continues).count();
        let turn = from..from + 1 + more;
        turns.extend(std::iter::repeat_n(turn.clone(), turn.len()));
    }
    turns
}
