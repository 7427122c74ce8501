//! The guarantees of a log for its writers and its readers.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use turnstream::event::Transition;
use turnstream::hub::{
    EventLog, EventNumber, LogContent, LogEntry, NotRunning, Snapshot, StaleEpoch, TooSlow,
};
use turnstream::session::{MemoryStore, Session};
use turnstream::{Error, ErrorKind, Event};

use crate::hub_suite::backend::Backend;
use crate::hub_suite::pace::Pace;

fn entries(epoch: u64, numbers: std::ops::Range<u64>) -> Vec<LogEntry> {
    let event = Arc::new(Event::Continued { reason: Transition::NextTurn });
    let entry = |number| LogEntry {
        number: EventNumber::new("r", epoch, number),
        content: LogContent::Event(Arc::clone(&event)),
    };
    numbers.map(entry).collect()
}

fn number(number: u64) -> EventNumber {
    EventNumber::new("r", 1, number)
}

async fn read_now<B: Backend>(log: &impl EventLog, after: Option<&EventNumber>) -> Vec<u64> {
    numbers_now::<B>(&mut log.read("r", after)).await
}

/// The numbers of the entries that a reader has now.
async fn numbers_now<B: Backend>(
    read: &mut BoxStream<'static, Result<LogEntry, Error>>,
) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(Some(Ok(entry))) = B::soon(read.next()).await {
        numbers.push(entry.number.number());
    }
    numbers
}

pub(super) async fn an_earlier_attempt_cannot_append<B: Backend>() {
    let log = B::events().await;
    assert_eq!(log.begin("r").await.unwrap(), 1);
    log.append(entries(1, 0..2), None).await.unwrap();
    assert_eq!(log.begin("r").await.unwrap(), 2);
    let refused = log.append(entries(1, 2..3), None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(refused.find_source::<StaleEpoch>().unwrap().found, 2);
    log.append(entries(2, 0..1), None).await.unwrap();
    assert_eq!(read_now::<B>(&log, Some(&number(1))).await, [0]);
    log.remove("r", 1);
    assert_eq!(log.stats().entries, 3, "it is the later attempt's");
    log.remove("r", 2);
    assert_eq!(log.stats().entries, 0);
}

pub(super) async fn reading_an_unknown_run_is_an_error<B: Backend>() {
    let error = B::events().await.read("r", None).next().await.unwrap().unwrap_err();
    assert_eq!(error.find_source::<NotRunning>().unwrap().run, "r");
}

pub(super) async fn an_event_number_of_another_run_or_beyond_the_log_is_ignored<B: Backend>() {
    let log = B::events().await;
    log.begin("r").await.unwrap();
    log.append(entries(1, 0..4), None).await.unwrap();
    for unknown in [EventNumber::new("other", 1, 2), number(9), EventNumber::new("r", 7, 0)] {
        assert_eq!(read_now::<B>(&log, Some(&unknown)).await, [0, 1, 2, 3], "{unknown}");
    }
    assert_eq!(read_now::<B>(&log, Some(&number(2))).await, [3]);
}

/// The entry of a snapshot.
async fn snapshot(epoch: u64, number: u64) -> Vec<LogEntry> {
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let content = LogContent::Snapshot(Arc::new(Snapshot::of_session(&session)));
    vec![LogEntry { number: EventNumber::new("r", epoch, number), content }]
}

pub(super) async fn a_reader_that_is_up_to_date_skips_the_snapshots_of_its_attempt<B: Backend>() {
    let log = B::events().await;
    log.begin("r").await.unwrap();
    log.append([snapshot(1, 0).await, entries(1, 1..3)].concat(), None).await.unwrap();
    let (mut first, mut later) = (log.read("r", None), log.read("r", Some(&number(1))));
    assert_eq!(numbers_now::<B>(&mut first).await, [0, 1, 2]);
    assert_eq!(numbers_now::<B>(&mut later).await, [2]);
    log.append([snapshot(1, 3).await, entries(1, 4..6)].concat(), None).await.unwrap();
    for reader in [&mut first, &mut later] {
        assert_eq!(numbers_now::<B>(reader).await, [4, 5]);
    }
    assert_eq!(read_now::<B>(&log, Some(&number(2))).await, [4, 5]);
    assert_eq!(read_now::<B>(&log, None).await, [3, 4, 5], "a new reader needs it");
    // The next attempt begins with a snapshot, which replaces what the readers have.
    log.begin("r").await.unwrap();
    log.append([snapshot(2, 0).await, entries(2, 1..2)].concat(), None).await.unwrap();
    for reader in [&mut first, &mut later] {
        assert_eq!(numbers_now::<B>(reader).await, [0, 1]);
    }
}

pub(super) async fn a_slow_reader_is_disconnected_with_its_last_number<B: Backend>() {
    let log = B::events().await;
    log.begin("r").await.unwrap();
    log.append(entries(1, 0..4), None).await.unwrap();
    let mut slow = log.read("r", None);
    assert_eq!(slow.next().await.unwrap().unwrap().number, number(0));
    log.append(entries(1, 4..6), Some(number(3))).await.unwrap();
    B::let_tasks_run().await;
    let error = slow.next().await.unwrap().unwrap_err();
    assert_eq!(error.find_source::<TooSlow>().unwrap().last, Some(number(0)));
    assert!(slow.next().await.is_none());
    assert_eq!((log.stats().entries, log.stats().cut_readers), (3, 1));
}
