//! A log in memory can wait for slow readers.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use turnstream::Event;
use turnstream::event::Transition;
use turnstream::hub::{
    EventLog, EventNumber, LogContent, LogEntry, MemoryLog, SlowReaders, TooSlow,
};

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

#[tokio::test(start_paused = true)]
async fn a_slow_reader_delays_the_run_at_most_by_its_limit() {
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
    assert!(slow.next().await.unwrap().unwrap_err().find_source::<TooSlow>().is_some());
    log.append(entries(1, 8..9), Some(number(8))).await.unwrap();
    assert_eq!(begin.elapsed(), Duration::from_secs(5), "who was cut holds nothing up");
}

#[tokio::test]
async fn a_dropped_reader_does_not_block_the_run() {
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
