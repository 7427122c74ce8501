//! The list of events that are kept for a snapshot.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::event::{Event, ToolEvent};
use crate::hub::log::delta::{DeltaKey, DeltaSource};
use crate::turn::{Text, TurnEvent};

/// The maximum number of entries in a chunk.
const MAX_CHUNK_LEN: usize = 64;

/// A list of entries in the order in which they were added. Each entry has a number, by which it
/// can be changed and removed.
///
/// The list is stored in chunks, and clones share the chunks. Changing an entry copies only the
/// entry's chunk, and only if a clone shares the chunk.
#[derive(Clone, Debug, Default)]
pub(in crate::hub) struct SnapshotEvents {
    /// The chunks that contain entries, oldest first.
    chunks: Vec<Arc<Chunk>>,
    /// The number of the next entry.
    next: u64,
}

/// Consecutive entries with their numbers.
type Chunk = Vec<(u64, Entry)>;

#[derive(Clone, Debug)]
pub(in crate::hub) enum Entry {
    Event(Arc<Event>),
    Deltas(Box<MergedDeltas>),
}

/// Consecutive deltas with the same source, merged into one.
#[derive(Clone, Debug)]
pub(in crate::hub) struct MergedDeltas {
    pub(in crate::hub) source: DeltaSource,
    pub(in crate::hub) text: String,
}

impl SnapshotEvents {
    /// Adds an entry, and returns its number.
    pub(in crate::hub) fn push(&mut self, entry: Entry) -> u64 {
        let number = self.next;
        self.next += 1;
        match self.chunks.last_mut() {
            Some(last) if last.len() < MAX_CHUNK_LEN => Arc::make_mut(last).push((number, entry)),
            Some(_) | None => self.chunks.push(Arc::new(vec![(number, entry)])),
        }
        number
    }

    pub(in crate::hub) fn get(&self, number: u64) -> Option<&Entry> {
        let (chunk, at) = self.position(number)?;
        self.chunks[chunk].get(at).map(|(_, entry)| entry)
    }

    pub(in crate::hub) fn get_mut(&mut self, number: u64) -> Option<&mut Entry> {
        let (chunk, at) = self.position(number)?;
        Arc::make_mut(&mut self.chunks[chunk]).get_mut(at).map(|(_, entry)| entry)
    }

    pub(in crate::hub) fn remove(&mut self, number: u64) {
        let Some((at_chunk, at)) = self.position(number) else { return };
        let chunk = Arc::make_mut(&mut self.chunks[at_chunk]);
        chunk.remove(at);
        if chunk.is_empty() {
            self.chunks.remove(at_chunk);
        }
    }

    pub(in crate::hub) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().map(|(_, entry)| entry))
    }

    /// Returns the index of the chunk that contains an entry, and the entry's index in the chunk.
    fn position(&self, number: u64) -> Option<(usize, usize)> {
        let starts_before = |chunk: &Arc<Chunk>| chunk.first().is_some_and(|it| it.0 <= number);
        let chunk = self.chunks.partition_point(starts_before).checked_sub(1)?;
        let at = self.chunks[chunk].binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some((chunk, at))
    }
}

/// A list of events, which is built from the kept entries when it is first read.
#[derive(Clone, Default)]
pub(in crate::hub) struct EventList {
    stored: SnapshotEvents,
    list: OnceLock<Vec<Arc<Event>>>,
}

impl EventList {
    pub(in crate::hub) fn as_slice(&self) -> &[Arc<Event>] {
        self.list.get_or_init(|| self.stored.iter().map(Entry::to_event).collect())
    }
}

impl From<SnapshotEvents> for EventList {
    fn from(stored: SnapshotEvents) -> Self {
        Self { stored, list: OnceLock::new() }
    }
}

impl From<Vec<Arc<Event>>> for EventList {
    fn from(events: Vec<Arc<Event>>) -> Self {
        Self { stored: SnapshotEvents::default(), list: events.into() }
    }
}

impl fmt::Debug for EventList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Entry {
    /// Returns whether the entry belongs to the same content block as a delta with this key. A
    /// delta can be merged only into the newest entry of its block.
    pub(in crate::hub) fn is_of_block(&self, key: &DeltaKey<&str>) -> bool {
        match (self, key) {
            (Self::Deltas(deltas), _) => match (deltas.source.key.as_borrowed(), key) {
                (
                    DeltaKey::Text(a) | DeltaKey::Refusal(a),
                    DeltaKey::Text(b) | DeltaKey::Refusal(b),
                )
                | (DeltaKey::Reasoning(a, _), DeltaKey::Reasoning(b, _)) => a == *b,
                (other, key) => other == *key,
            },
            (Self::Event(_), DeltaKey::Arguments(id)) => match self.turn_event() {
                Some(
                    TurnEvent::ToolCallStart { call_id, .. } | TurnEvent::ToolCallEnd { call_id },
                ) => call_id == id,
                _ => false,
            },
            (Self::Event(_), _) => false,
        }
    }

    /// Returns the turn event in this entry, if any, whether it comes from the run or from a
    /// sub-agent.
    pub(in crate::hub) fn turn_event(&self) -> Option<&TurnEvent> {
        let Self::Event(event) = self else { return None };
        let mut inner: &Event = event;
        loop {
            match inner {
                Event::Nested { event, .. } | Event::Tool(ToolEvent::Nested { event, .. }) => {
                    inner = event;
                }
                Event::Turn(event) => return Some(event),
                _ => return None,
            }
        }
    }

    fn to_event(&self) -> Arc<Event> {
        match self {
            Self::Event(event) => Arc::clone(event),
            Self::Deltas(deltas) => {
                Arc::new(deltas.source.to_event(Text::from(deltas.text.as_str())))
            }
        }
    }
}
