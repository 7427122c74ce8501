//! The entries of a log in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::hub::log::packed_entries::{DeltaSources, PackedEntries};
use crate::hub::{LogContent, LogEntry};

/// The capacity for recent entries that is kept although fewer are left.
const KEPT_CAPACITY: usize = 8;

/// The entries of a log, oldest first. An entry's index is counted from the first entry ever
/// written.
///
/// Older entries are [packed](PackedEntries). Packing changes neither the indexes nor the contents
/// of entries, so readers need not know about it.
#[derive(Debug, Default)]
pub(in crate::hub) struct EntryQueue {
    /// The older entries, with the index of the first entry of each pack.
    packed: VecDeque<(u64, Arc<PackedEntries>)>,
    /// The entries that have not been packed. The last entry of the log is never packed.
    recent: VecDeque<LogEntry>,
    /// The index of the first recent entry.
    recent_start: u64,
    /// The number of entries that have been removed. The oldest pack may contain some of them.
    removed: u64,
    last_snapshot: Option<u64>,
    sources: DeltaSources,
}

/// An entry that was found in a queue. [`into_entry`](Self::into_entry) needs no access to the
/// queue, and may allocate.
pub(in crate::hub) enum FoundEntry {
    Recent(LogEntry),
    /// A pack, and the entry's index in it.
    Packed(Arc<PackedEntries>, usize),
}

impl FoundEntry {
    pub(in crate::hub) fn into_entry(self) -> LogEntry {
        match self {
            Self::Recent(entry) => entry,
            Self::Packed(pack, index) => pack.entry(index),
        }
    }
}

impl EntryQueue {
    pub(in crate::hub) fn push(&mut self, entry: LogEntry) {
        if let LogContent::Snapshot(_) = entry.content {
            self.last_snapshot = Some(self.end());
        }
        self.recent.push_back(entry);
    }

    /// Returns the number of entries in the queue.
    pub(in crate::hub) fn len(&self) -> usize {
        usize::try_from(self.end() - self.removed).unwrap_or(usize::MAX)
    }

    /// Returns the index of the next entry.
    pub(in crate::hub) fn end(&self) -> u64 {
        self.recent_start + self.recent.len() as u64
    }

    pub(in crate::hub) fn last(&self) -> Option<&LogEntry> {
        self.recent.back()
    }

    /// Returns the index of the last snapshot, or of the oldest entry if there is no snapshot.
    pub(in crate::hub) fn last_snapshot(&self) -> u64 {
        self.last_snapshot.map_or(self.removed, |index| index.max(self.removed))
    }

    /// Returns the entry with this index, or the oldest entry if that entry has been removed.
    pub(in crate::hub) fn get(&self, index: u64) -> Option<FoundEntry> {
        let index = index.max(self.removed);
        if let Some(at) = index.checked_sub(self.recent_start) {
            return self.recent.get(usize::try_from(at).ok()?).cloned().map(FoundEntry::Recent);
        }
        let pack = self.packed.partition_point(|(start, _)| *start <= index).checked_sub(1)?;
        let (start, pack) = self.packed.get(pack)?;
        let at = usize::try_from(index - start).ok().filter(|at| *at < pack.len())?;
        Some(FoundEntry::Packed(Arc::clone(pack), at))
    }

    /// Returns the index of the first entry that is not before the given position.
    pub(in crate::hub) fn index_of(&self, position: (u64, u64)) -> u64 {
        let is_before = |entry: &LogEntry| entry.number.position() < position;
        if self.recent.front().is_some_and(is_before) {
            return self.recent_start + self.recent.partition_point(is_before) as u64;
        }
        let packs = self.packed.partition_point(|(_, pack)| pack.count_before(position) > 0);
        let pack = packs.checked_sub(1).and_then(|pack| self.packed.get(pack));
        let index = pack.map(|(start, pack)| start + pack.count_before(position) as u64);
        index.unwrap_or(self.removed).max(self.removed)
    }

    /// Removes the entries before this index.
    pub(in crate::hub) fn remove_before(&mut self, index: u64) {
        self.removed = self.removed.max(index.min(self.end()));
        let removed = self.removed;
        while self.packed.front().is_some_and(|(start, pack)| start + pack.len() as u64 <= removed)
        {
            self.packed.pop_front();
        }
        let count = removed.saturating_sub(self.recent_start);
        self.recent.drain(..usize::try_from(count).unwrap_or(usize::MAX));
        self.recent_start += count;
    }

    /// Packs the entries before this index, except for the last entry.
    pub(in crate::hub) fn pack_before(&mut self, index: u64) {
        while self.recent_start < index
            && self.recent.len() > 1
            && let Some(entry) = self.recent.pop_front()
        {
            self.pack(entry);
            self.recent_start += 1;
        }
        if self.recent.capacity() > 2 * KEPT_CAPACITY && self.recent.len() <= KEPT_CAPACITY {
            self.recent.shrink_to(KEPT_CAPACITY);
        }
    }

    /// Adds the entry with the index `recent_start` to the packed entries.
    fn pack(&mut self, LogEntry { number, content }: LogEntry) {
        let is_snapshot = matches!(content, LogContent::Snapshot(_));
        if is_snapshot {
            // Logs are trimmed at snapshots, so each snapshot starts a pack.
            self.sources = DeltaSources::default();
        } else if let Some((_, last)) = self.packed.back_mut()
            // A reader that is about to read from the pack shares it.
            && let Some(last) = Arc::get_mut(last)
            && last.can_add(&number)
        {
            return last.push(content, &mut self.sources);
        }
        let mut pack = PackedEntries::new(number);
        pack.push(content, &mut self.sources);
        self.packed.push_back((self.recent_start, Arc::new(pack)));
    }
}
