//! The items of a run's history that are to become void.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use crate::error::{Error, ErrorKind};
use crate::event::{Event, RewriteReason};
use crate::item::{History, Item, ItemKind, TombstoneEdit, position_out_of_range_error};
use crate::journal::Journal;
use crate::lock::lock_ignoring_poison;

/// The items that are to become void at the next boundary of turns. Its lock is taken before the
/// journal's and never the other way.
#[derive(Default)]
pub(super) struct TombstoneQueue(Mutex<QueuedPositions>);

#[derive(Default)]
struct QueuedPositions {
    /// Where they are in the history of the journal.
    positions: BTreeSet<usize>,
    /// The run is over, and no position is taken any more.
    is_closed: bool,
}

impl TombstoneQueue {
    /// Takes positions in the history of the journal.
    pub(super) fn add(&self, journal: &Journal, positions: &[usize]) -> Result<(), Error> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return Err(Error::new(ErrorKind::InvalidRequest, "the run is over"));
        }
        let (history, complete) = journal.history_and_final_len();
        if let Some(at) = positions.iter().find(|at| **at >= complete) {
            return Err(position_out_of_range_error(*at, complete));
        }
        history.tombstone_edits(positions.iter().copied())?;
        waiting.positions.extend(positions);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().positions.is_empty()
    }

    /// The next range of this history with items that are to become void.
    pub(super) fn next(&self, history: &History) -> Option<TombstoneEdit> {
        self.lock().next(history)
    }

    /// The same at the end of the run: if nothing waits, no position is taken any more.
    pub(super) fn next_or_close(&self, history: &History) -> Option<TombstoneEdit> {
        let mut waiting = self.lock();
        let next = waiting.next(history);
        waiting.is_closed |= next.is_none();
        next
    }

    /// Takes no position any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Lets the journal observe an event; the positions that wait follow their items.
    #[inline]
    pub(super) fn observe(&self, journal: &Journal, event: &Event) {
        let Event::Rewritten { why, from, to, items, .. } = event else {
            return journal.observe(event);
        };
        let mut waiting = self.lock();
        // A tombstone moves nothing.
        if *why != RewriteReason::Tombstoned && !waiting.positions.is_empty() {
            waiting.shift_positions(&journal.history(), *from, *to, items);
        }
        journal.observe(event);
    }

    fn lock(&self) -> MutexGuard<'_, QueuedPositions> {
        // Nothing of a user runs while the lock is held.
        lock_ignoring_poison(&self.0)
    }
}

impl QueuedPositions {
    fn next(&mut self, history: &History) -> Option<TombstoneEdit> {
        // Most often nothing waits, and the history is not looked at.
        if self.positions.is_empty() {
            return None;
        }
        let positions = std::mem::take(&mut self.positions);
        // Invariant: they were checked, and every call that had its result then has it now.
        let mut made = history.tombstone_edits(positions.iter().copied()).ok()?.into_iter();
        let first = made.next()?;
        if made.next().is_some() {
            let is_left = |at: &usize| !(first.from..first.to).contains(at);
            self.positions = positions.into_iter().filter(is_left).collect();
        }
        Some(first)
    }

    /// Follows the items when `from..to` of a history is replaced. Items that do not come back are
    /// left out.
    fn shift_positions(&mut self, before: &History, from: usize, to: usize, items: &[Item]) {
        let replaced: Vec<&Item> = before.iter().take(to).skip(from).collect();
        let positions = std::mem::take(&mut self.positions);
        let follow = |at: usize| match at {
            at if at < from => Some(at),
            at if at < to => new_position(&replaced, at - from, items).map(|place| from + place),
            at => Some(from + items.len() + (at - to)),
        };
        self.positions = positions.into_iter().filter_map(follow).collect();
    }
}

/// Where a replaced item has come back. Of equal items some of which are gone, the newest have.
fn new_position(replaced: &[&Item], at: usize, items: &[Item]) -> Option<usize> {
    let item = replaced.get(at)?;
    let came_back = items.iter().enumerate().filter(|(_, other)| is_same_item(item, other));
    let came_back: Vec<(usize, &Item)> = came_back.collect();
    let is_equal = |newer: &&&Item| came_back.iter().any(|(_, other)| is_same_item(newer, other));
    let newer = replaced[at + 1..].iter().filter(is_equal).count();
    came_back.iter().rev().nth(newer).map(|(place, _)| *place)
}

/// Whether an item is the other, or what a compaction has made of it.
fn is_same_item(item: &Item, other: &Item) -> bool {
    use ItemKind::{Reasoning, ToolCall, ToolResult};
    match (&item.kind, &other.kind) {
        (ToolCall(call), ToolCall(other)) => call.call_id == other.call_id,
        (ToolResult(result), ToolResult(other)) => result.call_id == other.call_id,
        (Reasoning { text }, Reasoning { text: shorter }) if other.compacted => {
            // Without any words nothing is left of it.
            let words = shorter.strip_suffix('…').unwrap_or(shorter);
            !words.is_empty() && text.starts_with(words)
        }
        (kind, other) => kind == other,
    }
}
