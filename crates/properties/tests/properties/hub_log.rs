//! A log in memory yields to each reader the entries that were written, however many of them the
//! reader has not read yet, and wherever it starts.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::executor::block_on;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use proptest::collection::vec;
use proptest::prelude::*;
use turnstream::event::Transition;
use turnstream::hub::{EventLog, EventNumber, LogContent, LogEntry, MemoryLog, Snapshot, TooSlow};
use turnstream::session::{MemoryStore, Session};
use turnstream::turn::{ReasoningKind, TurnEvent};
use turnstream::{Error, Event};

/// The number of readers that are attached at the same time, at most.
const READERS: usize = 4;

#[derive(Clone, Debug)]
enum LogAction {
    /// Appends events in one batch, after skipping this number of entry numbers.
    Append(u64, Vec<Event>),
    /// Appends a snapshot, and trims the log before the previous snapshot.
    Snapshot,
    /// Attaches a reader in place of the one with this index. `Some` is the position, among all
    /// entries ever written, of the last entry that the reader already has.
    Attach(usize, Option<prop::sample::Index>),
    /// A reader reads at most this number of entries.
    Read(usize, usize),
    Drop(usize),
}

/// Events of a run and of its sub-agents, most of which are deltas.
fn any_event() -> impl Strategy<Value = Event> {
    let text = || prop_oneof![10 => "[ a-zé]{0,8}", 1 => "[a-z]{24,40}", 1 => "[é]{120,140}"];
    let call_id = || prop::sample::select(vec!["c1", "c2", "c3"]);
    let kind = prop::sample::select(vec![ReasoningKind::Trace, ReasoningKind::Summary]);
    let event = prop_oneof![
        6 => (0_u32..2, text()).prop_map(|(index, text)| {
            TurnEvent::TextDelta { index, text: text.into() }.into()
        }),
        2 => (0_u32..2, text(), kind).prop_map(|(index, text, kind)| {
            TurnEvent::ReasoningDelta { index, text: text.into(), kind }.into()
        }),
        1 => (0_u32..2, text()).prop_map(|(index, text)| {
            TurnEvent::RefusalDelta { index, text: text.into() }.into()
        }),
        2 => (call_id(), text()).prop_map(|(id, text)| {
            TurnEvent::ToolCallArgsDelta { call_id: id.to_owned(), delta: text.into() }.into()
        }),
        1 => call_id().prop_map(|id| TurnEvent::ToolCallEnd { call_id: id.to_owned() }.into()),
        1 => Just(Event::Continued { reason: Transition::NextTurn }),
    ];
    (event, vec(call_id(), 0..3)).prop_map(|(event, parents)| {
        parents.into_iter().fold(event, |event, id| Event::Nested {
            call_id: id.to_owned(),
            name: format!("agent of {id}"),
            event: Box::new(event),
        })
    })
}

fn any_action() -> impl Strategy<Value = LogAction> {
    let skipped = prop_oneof![9 => Just(0), 1 => 1_u64..3];
    prop_oneof![
        8 => (skipped, vec(any_event(), 1..40)).prop_map(|(n, events)| LogAction::Append(n, events)),
        1 => Just(LogAction::Snapshot),
        2 => (0..READERS, any::<Option<prop::sample::Index>>())
            .prop_map(|(reader, after)| LogAction::Attach(reader, after)),
        6 => (0..READERS, 0_usize..60).prop_map(|(reader, count)| LogAction::Read(reader, count)),
        1 => (0..READERS).prop_map(LogAction::Drop),
    ]
}

/// A log, the entries ever written to it, and its readers.
struct LogModel {
    log: MemoryLog,
    snapshot: Arc<Snapshot>,
    written: Vec<LogEntry>,
    /// The number of entries that the log has trimmed.
    trimmed: usize,
    last_snapshot: usize,
    readers: BTreeMap<usize, ModelReader>,
}

struct ModelReader {
    entries: BoxStream<'static, Result<LogEntry, Error>>,
    /// The index of the next entry among those ever written.
    next: usize,
    last: Option<EventNumber>,
}

/// Compares snapshots by identity, since they have no equality.
fn is_same(read: &LogEntry, written: &LogEntry) -> bool {
    let is_same_content = match (&read.content, &written.content) {
        (LogContent::Event(read), LogContent::Event(written)) => read == written,
        (LogContent::Snapshot(read), LogContent::Snapshot(written)) => Arc::ptr_eq(read, written),
        (LogContent::End(read), LogContent::End(written)) => read.is_none() && written.is_none(),
        _ => false,
    };
    read.number == written.number && is_same_content
}

impl LogModel {
    fn new() -> Self {
        let log = MemoryLog::new();
        let session = block_on(Session::open(MemoryStore::new(), "s")).expect("a session");
        assert_eq!(block_on(log.begin("r")).expect("an epoch"), 1);
        let mut model = Self {
            log,
            snapshot: Arc::new(Snapshot::of_session(&session)),
            written: Vec::new(),
            trimmed: 0,
            last_snapshot: 0,
            readers: BTreeMap::new(),
        };
        model.append_snapshot();
        model
    }

    fn append(&mut self, skipped: u64, contents: Vec<LogContent>, trim_to: Option<usize>) {
        let first = self.written.last().map_or(0, |last| last.number.number() + 1 + skipped);
        let entries = contents.into_iter().zip(first..).map(|(content, number)| LogEntry {
            number: EventNumber::new("r", 1, number),
            content,
        });
        let entries: Vec<LogEntry> = entries.collect();
        self.written.extend(entries.iter().cloned());
        let before = trim_to.map(|index| self.written[index].number.clone());
        block_on(self.log.append(entries, before)).expect("an append");
        self.trimmed = trim_to.unwrap_or(self.trimmed);
        assert_eq!(self.log.stats().entries, self.written.len() - self.trimmed);
    }

    fn append_snapshot(&mut self) {
        let (last, content) =
            (self.last_snapshot, LogContent::Snapshot(Arc::clone(&self.snapshot)));
        self.last_snapshot = self.written.len();
        self.append(0, vec![content], Some(last.max(self.trimmed)).filter(|_| last > 0));
    }

    fn attach(&mut self, reader: usize, after: Option<prop::sample::Index>) {
        let after = after.map(|index| index.index(self.written.len()));
        let number = after.map(|index| self.written[index].number.clone());
        let known = after.filter(|index| *index >= self.trimmed);
        let next = known.map_or(self.last_snapshot, |index| index + 1);
        let entries = self.log.read("r", number.as_ref());
        let last = number.filter(|_| known.is_some());
        self.readers.insert(reader, ModelReader { entries, next, last });
    }

    /// Reads entries with one reader, and compares them with those that were written. Returns
    /// whether the reader can read on.
    fn read(&mut self, reader: usize, count: usize) -> bool {
        let Some(reader) = self.readers.get_mut(&reader) else { return true };
        for _ in 0..count {
            let read = reader.entries.next().now_or_never();
            if reader.next < self.trimmed {
                let error = read.flatten().expect("an item").expect_err("the reader was cut off");
                let too_slow = error.find_source::<TooSlow>().expect("the reason");
                assert_eq!(too_slow.last, reader.last);
                return false;
            }
            while let Some(LogEntry { number, content: LogContent::Snapshot(_) }) =
                self.written.get(reader.next)
                && let Some(last) = &reader.last
                && last.number() + 1 == number.number()
            {
                // A reader that has the entry before a snapshot does not need the snapshot.
                reader.last = Some(number.clone());
                reader.next += 1;
            }
            match (read, self.written.get(reader.next)) {
                (None, None) => return true,
                (Some(Some(Ok(read))), Some(written)) => {
                    assert!(is_same(&read, written), "{read:?} instead of {written:?}");
                    reader.last = Some(read.number);
                    reader.next += 1;
                }
                (read, written) => panic!("{read:?} instead of {written:?}"),
            }
        }
        true
    }

    fn apply(&mut self, action: LogAction) {
        match action {
            LogAction::Append(skipped, events) => {
                let content = |event| LogContent::Event(Arc::new(event));
                self.append(skipped, events.into_iter().map(content).collect(), None);
            }
            LogAction::Snapshot => self.append_snapshot(),
            LogAction::Attach(reader, after) => self.attach(reader, after),
            LogAction::Read(reader, count) => {
                if !self.read(reader, count) {
                    self.readers.remove(&reader);
                }
            }
            LogAction::Drop(reader) => drop(self.readers.remove(&reader)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn readers_receive_the_entries_that_were_written(actions in vec(any_action(), 1..60)) {
        let mut model = LogModel::new();
        for action in actions {
            model.apply(action);
        }
        for reader in 0..READERS {
            model.read(reader, usize::MAX);
        }
    }
}
