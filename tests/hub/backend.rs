//! Logs and inboxes in memory, for the suite of tests that apply to every log.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use turnstream::Error;
use turnstream::agent::InputReceipt;
use turnstream::hub::{
    Command, CommandInbox, EventLog, EventNumber, Hub, HubBuilder, LogEntry, LogStats, MemoryInbox,
    MemoryLog, SentCommand,
};
use turnstream_testing::hub_suite::{Backend, Clock};

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

    fn clock() -> Clock {
        Clock::Paused
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
