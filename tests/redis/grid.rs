//! The claims of `tests/hub`, with Redis: on one machine, and with each run on another machine than
//! its readers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::sync::Arc;
use tokio::time::Instant;
use turnstream::Error;
use turnstream::agent::InputReceipt;
use turnstream::hub::redis::{RedisEvents, RedisOptions};
use turnstream::hub::{
    Command, CommandInbox, EventLog, EventNumber, LogEntry, LogStats, RunDirectory, SentCommand,
};

use crate::server::Server;

/// A connection to the server that all of these tests share, with a prefix of its own.
pub(crate) async fn connect() -> RedisEvents {
    options().connect().await.unwrap()
}

fn options() -> RedisOptions {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let url = SERVER.get_or_init(Server::start).url();
    let prefix = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    RedisOptions::new(url).with_prefix(prefix)
}

/// A log that one machine writes and another one reads.
#[derive(Clone)]
pub(crate) struct TwoConnections {
    writes: RedisEvents,
    reads: RedisEvents,
}

impl TwoConnections {
    pub(crate) async fn connect() -> Self {
        let options = options();
        // Another connection with the same prefix acts as another process for Redis.
        let (writes, reads) = (options.clone().connect().await, options.connect().await);
        Self { writes: writes.unwrap(), reads: reads.unwrap() }
    }
}

impl EventLog for TwoConnections {
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>> {
        self.writes.begin(run)
    }

    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>> {
        self.writes.append(entries, trim_before)
    }

    fn read(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>> {
        self.reads.read(run, after)
    }

    fn remove(&self, run: &str, epoch: u64) {
        self.writes.remove(run, epoch);
    }

    fn directory(&self) -> Option<Arc<dyn RunDirectory>> {
        self.writes.directory()
    }

    fn stats(&self) -> LogStats {
        let mut stats = self.writes.stats();
        stats.cut_readers = self.reads.stats().cut_readers;
        stats
    }
}

impl CommandInbox for TwoConnections {
    fn open<'a>(
        &'a self,
        run: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, SentCommand>, Error>> {
        self.writes.open(run)
    }

    fn send<'a>(
        &'a self,
        run: &'a str,
        id: String,
        command: Command,
    ) -> BoxFuture<'a, Result<InputReceipt, Error>> {
        self.reads.send(run, id, command)
    }
}

/// The future's output if it is ready within a moment.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_millis(150), future).await.ok()
}

pub(crate) async fn let_tasks_run() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// A duration in a test, scaled for a clock that cannot be paused.
pub(crate) fn time(time: Duration) -> Duration {
    time / 30
}

pub(crate) fn step() -> Duration {
    Duration::from_millis(4)
}

pub(crate) fn assert_elapsed(since: Instant, expected: Duration) {
    let elapsed = since.elapsed();
    assert!(elapsed >= expected && elapsed < expected + Duration::from_secs(2), "{elapsed:?}");
}

pub(crate) fn count(count: usize) -> usize {
    count / 8
}

/// The run does not wait for its readers, which are slower here.
pub(crate) fn least_attached() -> usize {
    300
}

pub(crate) fn stride() -> usize {
    25
}

pub(crate) fn seeds() -> u64 {
    6
}
