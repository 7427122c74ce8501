//! Consecutive entries of a log, in a form that uses little memory.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Error;
use crate::event::Event;
use crate::hub::log::delta::{Delta, DeltaSource};
use crate::hub::{EventNumber, LogContent, LogEntry, Snapshot};
use crate::turn::Text;

/// The maximum number of entries that are packed together.
const MAX_LEN: usize = 32;

/// Consecutive entries of an attempt. Their deltas are kept as one text, from which
/// [`entry`](Self::entry) creates the events again.
#[derive(Debug)]
pub(in crate::hub) struct PackedEntries {
    first: EventNumber,
    entries: Vec<PackedEntry>,
    /// The texts of all deltas, in order.
    text: String,
}

#[derive(Debug)]
enum PackedEntry {
    Delta { bytes: u8, start: u32, source: Arc<DeltaSource> },
    Event(Arc<Event>),
    Snapshot(Arc<Snapshot>),
    End(Option<Error>),
}

/// The sources of the deltas that were packed last, so that deltas with the same source share it.
#[derive(Debug, Default)]
pub(in crate::hub) struct DeltaSources {
    last: Option<Arc<DeltaSource>>,
    by_hash: HashMap<u64, Arc<DeltaSource>>,
}

impl PackedEntries {
    /// `first` is the number of the first entry.
    pub(in crate::hub) fn new(first: EventNumber) -> Self {
        Self { first, entries: Vec::new(), text: String::new() }
    }

    /// Returns whether an entry with this number can be added.
    pub(in crate::hub) fn can_add(&self, number: &EventNumber) -> bool {
        let next = self.first.number().checked_add(self.entries.len() as u64);
        self.entries.len() < MAX_LEN
            && number.epoch() == self.first.epoch()
            && Some(number.number()) == next
    }

    /// Adds the text of a delta of at most 255 bytes. Returns `None` for other events, and for
    /// longer deltas: an event uses little memory in addition to a long text.
    fn add_delta(&mut self, event: &Event, sources: &mut DeltaSources) -> Option<PackedEntry> {
        let delta = Delta::of(event)?;
        let bytes = u8::try_from(delta.text.len()).ok()?;
        let start = u32::try_from(self.text.len()).ok()?;
        self.text.push_str(delta.text);
        Some(PackedEntry::Delta { bytes, start, source: sources.get(&delta) })
    }

    pub(in crate::hub) fn push(&mut self, content: LogContent, sources: &mut DeltaSources) {
        let entry = match content {
            LogContent::Event(event) => match self.add_delta(&event, sources) {
                Some(entry) => entry,
                None => PackedEntry::Event(event),
            },
            LogContent::Snapshot(snapshot) => PackedEntry::Snapshot(snapshot),
            LogContent::End(error) => PackedEntry::End(error),
        };
        self.entries.push(entry);
        if self.entries.len() == MAX_LEN {
            self.text.shrink_to_fit();
        }
    }

    pub(in crate::hub) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of entries before this position.
    pub(in crate::hub) fn count_before(&self, position: (u64, u64)) -> usize {
        let (epoch, number) = self.first.position();
        match position.0.cmp(&epoch) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => {
                let count = position.1.saturating_sub(number);
                usize::try_from(count).map_or(self.len(), |count| count.min(self.len()))
            }
            std::cmp::Ordering::Greater => self.len(),
        }
    }

    /// Returns the entry with this index.
    ///
    /// # Panics
    ///
    /// Panics if the index is not less than the [number of entries](Self::len).
    pub(in crate::hub) fn entry(&self, index: usize) -> LogEntry {
        let content = match &self.entries[index] {
            PackedEntry::Delta { bytes, start, source } => {
                let start = *start as usize;
                let text = Text::from(&self.text[start..start + usize::from(*bytes)]);
                LogContent::Event(Arc::new(source.to_event(text)))
            }
            PackedEntry::Event(event) => LogContent::Event(Arc::clone(event)),
            PackedEntry::Snapshot(snapshot) => LogContent::Snapshot(Arc::clone(snapshot)),
            PackedEntry::End(error) => LogContent::End(error.clone()),
        };
        LogEntry { number: self.first.plus(index as u64), content }
    }
}

impl DeltaSources {
    /// Returns the source of a delta.
    fn get(&mut self, delta: &Delta<'_>) -> Arc<DeltaSource> {
        if let Some(last) = self.last.as_ref().filter(|last| delta.is_of(last)) {
            return Arc::clone(last);
        }
        let hash = delta.hash();
        let known = self.by_hash.get(&hash).filter(|source| delta.is_of(source));
        let source = known.map_or_else(|| Arc::new(delta.to_source()), Arc::clone);
        self.by_hash.insert(hash, Arc::clone(&source));
        self.last = Some(Arc::clone(&source));
        source
    }
}
