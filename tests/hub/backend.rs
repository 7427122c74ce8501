//! Logs and inboxes in memory, for the suite of tests that apply to every log.

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
use turnstream_test_support::hub_suite::Backend;

/// A log and its inboxes.
#[derive(Clone, Default)]
pub(crate) struct Events(MemoryLog, MemoryInbox);

/// The backend of the suite.
pub(crate) struct InMemory;

impl Backend for InMemory {
    type Events = Events;

    async fn events() -> Events {
        Events::default()
    }

    async fn builder() -> HubBuilder {
        Hub::builder()
    }

    /// Returns the future's output if it is ready immediately.
    async fn soon<T>(future: impl Future<Output = T>) -> Option<T> {
        future.now_or_never()
    }

    async fn let_tasks_run() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// A duration is unchanged here, since the clock is paused.
    fn time(time: Duration) -> Duration {
        time
    }

    fn step() -> Duration {
        Duration::from_millis(1)
    }

    fn assert_elapsed(since: Instant, expected: Duration) {
        assert_eq!(since.elapsed(), expected);
    }

    fn count(count: usize) -> usize {
        count
    }

    fn least_attached() -> usize {
        10_000
    }

    fn stride() -> usize {
        1
    }

    fn seeds() -> u64 {
        400
    }
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
