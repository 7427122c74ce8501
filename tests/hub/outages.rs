//! The behaviour of a run while its log or its store is unavailable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use turnstream::hub::{
    Command, EventLog, EventNumber, Hub, HubEvent, LogEntry, LogOutage, LogUnavailable,
    MemoryInbox, MemoryLog, NotRunning, RunSource,
};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, MemoryStore, Session, Store};
use turnstream::turn::{Text, TurnEvent};
use turnstream::{Agent, Error, Event, History, Journal};

use turnstream_test_support::forward_to_inner;

/// A log that cannot be written for a while.
#[derive(Clone, Default)]
struct Failing {
    log: MemoryLog,
    is_down: Arc<AtomicBool>,
}

impl EventLog for Failing {
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>> {
        self.log.begin(run)
    }

    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>> {
        if self.is_down.load(Ordering::SeqCst) {
            return async { Err(LogUnavailable.into()) }.boxed();
        }
        self.log.append(entries, trim_before)
    }

    fn read(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>> {
        self.log.read(run, after)
    }

    fn remove(&self, run: &str, epoch: u64) {
        self.log.remove(run, epoch);
    }
}

/// A log whose entries can be read a second before the append returns.
#[derive(Clone, Default)]
struct LateAnswer(MemoryLog);

impl EventLog for LateAnswer {
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>> {
        self.0.begin(run)
    }

    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let appended = self.0.append(entries, trim_before).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            appended
        }
        .boxed()
    }

    fn read(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>> {
        self.0.read(run, after)
    }

    fn remove(&self, run: &str, epoch: u64) {
        self.0.remove(run, epoch);
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_is_refused_once_the_end_of_its_run_can_be_read() {
    let hub = Hub::builder().with_backend(LateAnswer::default(), MemoryInbox::default()).build();
    let run = Agent::new(Scripted::new(["Done."])).run("Go.");
    let run = hub.start("key", run).await.unwrap().detach();
    let mut reader = hub.read_run(&run, None).unwrap();
    while !matches!(reader.next().await.unwrap().unwrap(), HubEvent::Ended { .. }) {}
    let refused = hub.send(&run, Command::Interrupt).await.unwrap_err();
    assert!(refused.find_source::<NotRunning>().is_some());
}

/// A run of `count` words, one per second, which counts the words that were pulled.
fn words(count: usize, pulled: &Arc<AtomicUsize>) -> RunSource {
    let started = Event::TurnStarted { turn: 1, model: "m".to_owned(), transition: None };
    let pulled = Arc::clone(pulled);
    let words = stream::iter(0..count).then(move |n| {
        let pulled = Arc::clone(&pulled);
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            pulled.fetch_add(1, Ordering::SeqCst);
            let text = Text::from(format!("{n} "));
            Ok(Event::Turn(TurnEvent::TextDelta { index: 0, text }))
        }
    });
    RunSource::new(History::empty("h"), stream::iter([Ok(started)]).chain(words))
}

fn text_of(journal: &Journal) -> String {
    journal.history().iter().filter_map(|item| item.as_text().map(str::to_owned)).collect()
}

/// Reads to the end as a page does.
async fn read_all(mut reader: turnstream::hub::Reader) -> (String, usize) {
    let (mut journal, mut snapshots, mut has_ended) = (Journal::new(History::empty("h")), 0, false);
    while let Some(event) = reader.next().await {
        match event.unwrap() {
            HubEvent::Snapshot { snapshot, .. } => {
                journal = snapshot.to_journal();
                snapshots += 1;
            }
            HubEvent::Event { event, .. } => journal.observe(&event),
            HubEvent::Ended { error, .. } => {
                assert_eq!(error, None);
                has_ended = true;
            }
            _ => {}
        }
    }
    assert!(has_ended);
    (text_of(&journal), snapshots)
}

const ALL: &str = "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 ";

#[tokio::test(start_paused = true)]
async fn a_run_continues_while_its_log_is_unavailable_and_a_snapshot_follows() {
    let (log, pulled) = (Failing::default(), Arc::new(AtomicUsize::new(0)));
    let hub = Hub::builder().with_backend(log.clone(), MemoryInbox::new()).build();
    hub.start("key", words(20, &pulled)).await.unwrap().detach();
    let read = tokio::spawn(read_all(hub.read("key", None).unwrap()));
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    log.is_down.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(pulled.load(Ordering::SeqCst), 8, "it continues");
    log.is_down.store(false, Ordering::SeqCst);
    assert_eq!(read.await.unwrap(), (ALL.to_owned(), 2));
}

#[tokio::test(start_paused = true)]
async fn the_end_is_written_once_the_log_is_available_again() {
    let (log, pulled) = (Failing::default(), Arc::new(AtomicUsize::new(0)));
    let hub = Hub::builder().with_backend(log.clone(), MemoryInbox::new()).build();
    hub.start("key", words(20, &pulled)).await.unwrap().detach();
    let read = tokio::spawn(read_all(hub.read("key", None).unwrap()));
    log.is_down.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((pulled.load(Ordering::SeqCst), hub.stats().runs), (20, 0));
    assert!(!read.is_finished());
    log.is_down.store(false, Ordering::SeqCst);
    assert_eq!(read.await.unwrap().0, ALL);
}

#[tokio::test(start_paused = true)]
async fn a_pausing_run_is_not_polled_until_its_log_is_available() {
    let (log, pulled) = (Failing::default(), Arc::new(AtomicUsize::new(0)));
    let hub = Hub::builder()
        .with_backend(log.clone(), MemoryInbox::new())
        .with_log_outage(LogOutage::Pause)
        .build();
    hub.start("key", words(20, &pulled)).await.unwrap().detach();
    let read = tokio::spawn(read_all(hub.read("key", None).unwrap()));
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    log.is_down.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(pulled.load(Ordering::SeqCst), 4);
    log.is_down.store(false, Ordering::SeqCst);
    assert_eq!(read.await.unwrap().0, ALL);
}

#[tokio::test(start_paused = true)]
async fn a_run_started_during_a_log_outage_can_be_read_afterwards() {
    let (log, pulled) = (Failing::default(), Arc::new(AtomicUsize::new(0)));
    log.is_down.store(true, Ordering::SeqCst);
    let hub = Hub::builder().with_backend(log.clone(), MemoryInbox::new()).build();
    let run = hub.start("key", words(20, &pulled)).await.unwrap().detach();
    tokio::time::sleep(Duration::from_millis(5_500)).await;
    assert_eq!(pulled.load(Ordering::SeqCst), 5, "it continues");
    log.is_down.store(false, Ordering::SeqCst);
    // When the write is retried, the log starts with a snapshot.
    let reader = loop {
        let mut reader = hub.read_run(&run, None).unwrap();
        match reader.next().await {
            Some(Ok(HubEvent::Snapshot { .. })) => break hub.read_run(&run, None).unwrap(),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    assert!(pulled.load(Ordering::SeqCst) < 20);
    assert_eq!(read_all(reader).await.0, ALL);
    // Commands reach the run as well.
    assert!(hub.send(&run, turnstream::hub::Command::Interrupt).await.is_err(), "it has ended");
}

#[tokio::test]
async fn a_run_that_pauses_for_its_log_is_not_started_without_it() {
    let log = Failing::default();
    log.is_down.store(true, Ordering::SeqCst);
    let hub = Hub::builder()
        .with_backend(log, MemoryInbox::new())
        .with_log_outage(LogOutage::Pause)
        .build();
    let refused = hub.start("key", words(1, &Arc::default())).await.unwrap_err();
    assert!(refused.find_source::<LogUnavailable>().is_some());
    assert!(hub.reserve("key").is_ok());
}

/// A store whose appends do not end once `is_stuck` is set.
#[derive(Clone, Default)]
struct StuckStore {
    inner: MemoryStore,
    is_stuck: Arc<AtomicBool>,
}

impl Store for StuckStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        if self.is_stuck.load(Ordering::SeqCst) {
            return futures::future::pending().boxed();
        }
        self.inner.append(id, expected, entries)
    }

    forward_to_inner!();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_ten_seconds_for_interrupted_runs_to_be_stored() {
    let (store, hub) = (StuckStore::default(), Hub::new());
    let session = Session::open(store.clone(), "s").await.unwrap();
    let agent = Agent::new(Scripted::new([Reply::text("Once").hang()]));
    hub.start("s", session.run(&agent, "Go.").await.unwrap()).await.unwrap().detach();
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.is_stuck.store(true, Ordering::SeqCst);
    let begin = tokio::time::Instant::now();
    hub.shut_down(Duration::from_secs(30)).await;
    assert_eq!((begin.elapsed(), hub.stats().runs), (Duration::from_secs(40), 0));
}
