//! The backends of the suite for hubs: one machine, and two of which one has the runs and the other
//! one their readers.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use turnstream::Error;
use turnstream::agent::InputReceipt;
use turnstream::hub::{
    Command, CommandInbox, EventLog, EventNumber, LogEntry, LogStats, RunDirectory, SentCommand,
};
use turnstream_redis::{RedisEvents, RedisOptions};
use turnstream_test_support::redis::Server;
use turnstream_testing::hub_suite::Backend;

/// A Redis that one process uses.
pub(crate) type OneMachine = Machines<RedisEvents>;

/// A Redis that two processes use.
pub(crate) type TwoMachines = Machines<TwoConnections>;

/// Machines that connect to Redis for each hub.
pub(crate) struct Machines<E>(PhantomData<E>);

/// Connects to the server that all of these tests share, with a prefix of its own.
trait Connect {
    async fn connect() -> Self;
}

impl Connect for RedisEvents {
    async fn connect() -> Self {
        options().connect().await.unwrap()
    }
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

impl Connect for TwoConnections {
    async fn connect() -> Self {
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

impl<E: Connect + EventLog + CommandInbox + Clone + 'static> Backend for Machines<E> {
    type Events = E;

    async fn events() -> E {
        E::connect().await
    }
}
