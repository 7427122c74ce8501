//! Queues the items in a run's history that will become tombstones.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::{History, Item, ItemKind, TombstoneEdit, position_out_of_range_error};
use crate::journal::Journal;
use crate::lock::lock_ignoring_poison;

/// Tracks the items that will become tombstones before the next request or before the run ends. The
/// queue's lock is always taken before the journal's lock.
#[derive(Default)]
pub(in crate::agent) struct TombstoneQueue(Mutex<QueuedPositions>);

#[derive(Default)]
struct QueuedPositions {
    /// The positions of the queued items in the journal's history.
    positions: BTreeSet<usize>,
    /// Whether the run is over, in which case no more positions are accepted.
    is_closed: bool,
}

impl TombstoneQueue {
    /// Adds the positions of items in the journal's history to the queue.
    pub(in crate::agent) fn add(
        &self,
        journal: &Journal,
        positions: &[usize],
    ) -> Result<(), Error> {
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

    pub(in crate::agent) fn is_empty(&self) -> bool {
        self.lock().positions.is_empty()
    }

    /// Returns the next edit, which turns a range of queued items in this history into tombstones.
    pub(in crate::agent) fn next(&self, history: &History) -> Option<TombstoneEdit> {
        self.lock().next(history)
    }

    /// Returns the next edit at the end of the run, or closes the queue if it is empty.
    pub(in crate::agent) fn next_or_close(&self, history: &History) -> Option<TombstoneEdit> {
        let mut waiting = self.lock();
        let next = waiting.next(history);
        waiting.is_closed |= next.is_none();
        next
    }

    /// Closes the queue, so that no more positions are accepted.
    pub(in crate::agent) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Passes an event to the journal, and updates the queued positions.
    #[inline]
    pub(in crate::agent) fn observe(&self, journal: &Journal, event: &Event) {
        let Event::Rewritten { why, from, to, items, .. } = event else {
            return journal.observe(event);
        };
        let mut waiting = self.lock();
        if !why.keeps_positions() && !waiting.positions.is_empty() {
            waiting.shift_positions(&journal.history(), *from, *to, items);
        }
        journal.observe(event);
    }

    fn lock(&self) -> MutexGuard<'_, QueuedPositions> {
        // No user code runs while the lock is held.
        lock_ignoring_poison(&self.0)
    }
}

impl QueuedPositions {
    fn next(&mut self, history: &History) -> Option<TombstoneEdit> {
        // The queue is usually empty, in which case the history is not needed.
        if self.positions.is_empty() {
            return None;
        }
        let positions = std::mem::take(&mut self.positions);
        // Invariant: the positions were checked when they were added, and calls that had a result
        // at that time still have one.
        let mut made = history.tombstone_edits(positions.iter().copied()).ok()?.into_iter();
        let first = made.next()?;
        if made.next().is_some() {
            let is_left = |at: &usize| !(first.from..first.to).contains(at);
            self.positions = positions.into_iter().filter(is_left).collect();
        }
        Some(first)
    }

    /// Updates the positions when the items at `from..to` in a history are replaced. The positions
    /// of items that no longer exist are removed.
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

/// Returns the new position of a replaced item, if the item still exists. If several replaced items
/// are equal and fewer equal items remain, the items that remain are assumed to be the last of the
/// replaced ones.
fn new_position(replaced: &[&Item], at: usize, items: &[Item]) -> Option<usize> {
    let item = replaced.get(at)?;
    let came_back = items.iter().enumerate().filter(|(_, other)| is_same_item(item, other));
    let came_back: Vec<(usize, &Item)> = came_back.collect();
    let is_equal = |newer: &&&Item| came_back.iter().any(|(_, other)| is_same_item(newer, other));
    let newer = replaced[at + 1..].iter().filter(is_equal).count();
    came_back.iter().rev().nth(newer).map(|(place, _)| *place)
}

/// Returns whether `other` is the same item as `item`, or a version of `item` that a compaction has
/// shortened.
fn is_same_item(item: &Item, other: &Item) -> bool {
    use ItemKind::{Reasoning, ToolCall, ToolResult};
    match (&item.kind, &other.kind) {
        (ToolCall(call), ToolCall(other)) => call.call_id == other.call_id,
        (ToolResult(result), ToolResult(other)) => result.call_id == other.call_id,
        (Reasoning { text }, Reasoning { text: shorter }) if other.compacted => {
            // If no text is left, nothing is left of the item.
            let prefix = shorter.strip_suffix('…').unwrap_or(shorter);
            !prefix.is_empty() && text.starts_with(prefix)
        }
        (kind, other) => kind == other,
    }
}
