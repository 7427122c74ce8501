//! Logs and inboxes in memory, for the tests that apply to every log.
#![expect(clippy::unused_async, reason = "other backends need it")]

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::time::Instant;
use turnstream::Error;
use turnstream::agent::InputReceipt;
use turnstream::hub::{
    Command, CommandInbox, EventLog, EventNumber, Hub, HubBuilder, LogEntry, LogStats, MemoryInbox,
    MemoryLog, SentCommand,
};
/// A log and its inboxes.
#[derive(Clone, Default)]
pub(crate) struct Events(MemoryLog, MemoryInbox);

pub(crate) async fn events() -> Events {
    Events::default()
}

pub(crate) async fn builder() -> HubBuilder {
    Hub::builder()
}

pub(crate) async fn hub() -> Hub {
    builder().await.build()
}

/// Returns the future's output if it is ready immediately.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> Option<T> {
    future.now_or_never()
}

pub(crate) async fn let_tasks_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// A duration in a test; unchanged here, since the clock is paused.
pub(crate) fn time(time: Duration) -> Duration {
    time
}

/// The time between two events.
pub(crate) fn step() -> Duration {
    Duration::from_millis(1)
}

pub(crate) fn assert_elapsed(since: Instant, expected: Duration) {
    assert_eq!(since.elapsed(), expected);
}

/// The number of repetitions in a test.
pub(crate) fn count(count: usize) -> usize {
    count
}

/// The minimum number of times that readers attach in tests where they do so at random.
pub(crate) fn least_attached() -> usize {
    10_000
}

/// One case in this number is tested.
pub(crate) fn stride() -> usize {
    1
}

pub(crate) fn seeds() -> u64 {
    400
}

impl EventLog for Events {
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>> {
        self.0.begin(run)
    }

    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>> {
        self.0.append(entries, trim_before)
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

    fn stats(&self) -> LogStats {
        self.0.stats()
    }
}

impl CommandInbox for Events {
    fn open<'a>(
        &'a self,
        run: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, SentCommand>, Error>> {
        self.1.open(run)
    }

    fn send<'a>(
        &'a self,
        run: &'a str,
        id: String,
        command: Command,
    ) -> BoxFuture<'a, Result<InputReceipt, Error>> {
        self.1.send(run, id, command)
    }
}
