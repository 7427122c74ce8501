//! What a log promises to those who write it, and to those who read it.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use turnstream::event::Transition;
use turnstream::hub::{
    EventLog, EventNumber, LogContent, LogEntry, MemoryLog, NotRunning, SlowReaders, StaleEpoch,
    TooSlow,
};
use turnstream::{ErrorKind, Event};

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

fn read_now(log: &MemoryLog, after: Option<&EventNumber>) -> Vec<u64> {
    let mut read = log.read("r", after);
    let mut numbers = Vec::new();
    while let Some(Some(Ok(entry))) = read.next().now_or_never() {
        numbers.push(entry.number.number());
    }
    numbers
}

#[tokio::test]
async fn an_older_attempt_may_not_append() {
    let log = MemoryLog::new();
    assert_eq!(log.begin("r").await.unwrap(), 1);
    log.append(entries(1, 0..2), None).await.unwrap();
    assert_eq!(log.begin("r").await.unwrap(), 2);
    let refused = log.append(entries(1, 2..3), None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(StaleEpoch::from_error(&refused).unwrap().found, 2);
    log.append(entries(2, 0..1), None).await.unwrap();
    assert_eq!(read_now(&log, Some(&number(1))), [0]);
    log.remove("r", 1);
    assert_eq!(log.stats().entries, 3, "it is the later attempt's");
    log.remove("r", 2);
    assert_eq!(log.stats().entries, 0);
}

#[tokio::test]
async fn a_reader_of_no_run_is_told() {
    let error = MemoryLog::new().read("r", None).next().await.unwrap().unwrap_err();
    assert_eq!(NotRunning::from_error(&error).unwrap().run, "r");
}

#[tokio::test]
async fn a_number_of_another_run_or_from_the_future_is_as_none() {
    let log = MemoryLog::new();
    log.begin("r").await.unwrap();
    log.append(entries(1, 0..4), None).await.unwrap();
    for unknown in [EventNumber::new("other", 1, 2), number(9), EventNumber::new("r", 7, 0)] {
        assert_eq!(read_now(&log, Some(&unknown)), [0, 1, 2, 3], "{unknown}");
    }
    assert_eq!(read_now(&log, Some(&number(2))), [3]);
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_cut_and_told_where() {
    let log = MemoryLog::new();
    log.begin("r").await.unwrap();
    log.append(entries(1, 0..4), None).await.unwrap();
    let mut slow = log.read("r", None);
    assert_eq!(slow.next().await.unwrap().unwrap().number, number(0));
    log.append(entries(1, 4..6), Some(number(3))).await.unwrap();
    let error = slow.next().await.unwrap().unwrap_err();
    assert_eq!(TooSlow::from_error(&error).unwrap().last, Some(number(0)));
    assert!(slow.next().await.is_none());
    assert_eq!((log.stats().entries, log.stats().cut_readers), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_the_run_up_for_no_longer_than_it_may() {
    let log = MemoryLog::new().with_slow_readers(SlowReaders::Wait(Duration::from_secs(5)));
    log.begin("r").await.unwrap();
    log.append(entries(1, 0..4), None).await.unwrap();
    let mut slow = log.read("r", None);
    let begin = tokio::time::Instant::now();
    let mut append = log.append(entries(1, 4..6), Some(number(2)));
    assert!((&mut append).now_or_never().is_none(), "it waits");
    slow.next().await.unwrap().unwrap();
    slow.next().await.unwrap().unwrap();
    append.await.unwrap();
    assert_eq!(begin.elapsed(), Duration::ZERO, "the reader has read enough");
    log.append(entries(1, 6..8), Some(number(6))).await.unwrap();
    assert_eq!(begin.elapsed(), Duration::from_secs(5));
    assert!(TooSlow::from_error(&slow.next().await.unwrap().unwrap_err()).is_some());
    log.append(entries(1, 8..9), Some(number(8))).await.unwrap();
    assert_eq!(begin.elapsed(), Duration::from_secs(5), "who was cut holds nothing up");
}

#[tokio::test]
async fn a_reader_that_is_dropped_holds_nothing_up() {
    let log = MemoryLog::new().with_slow_readers(SlowReaders::Wait(Duration::MAX));
    log.begin("r").await.unwrap();
    log.append(entries(1, 0..4), None).await.unwrap();
    let slow = log.read("r", None);
    let mut append = log.append(entries(1, 4..6), Some(number(4)));
    assert!((&mut append).now_or_never().is_none(), "it waits");
    drop(slow);
    append.await.unwrap();
    assert_eq!(log.stats().cut_readers, 0);
}

#[test]
fn a_number_is_read_as_it_is_written() {
    for text in ["r.1-0", "a.b.c.12-34", "5f0c.18446744073709551615-0"] {
        assert_eq!(text.parse::<EventNumber>().unwrap().to_string(), text);
    }
    for text in
        ["", "r", ".1-0", "r.1", "r.-", "r.1-", "r.+1-0", "r.1-0x", "r.1-99999999999999999999"]
    {
        assert!(text.parse::<EventNumber>().is_err(), "{text}");
    }
}
