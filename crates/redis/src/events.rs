//! The public type for logs, inboxes and the run directory in Redis.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt, TryStreamExt, once};
use redis::Client;
use tokio::runtime::Handle;
use turnstream::agent::InputReceipt;
use turnstream::hub::{
    AnnouncedRun, Command, CommandInbox, EventLog, EventNumber, LogEntry, LogStats, LostRun,
    RunDirectory, SentCommand,
};
use turnstream::task::OwnedTask;
use turnstream::{Error, ErrorKind};

use crate::follower::follow;
use crate::heartbeat::beat_for_ever;
use crate::mirror::Mirror;
use crate::options::RedisOptions;
use crate::outbox::Outbox;
use crate::shared_state::SharedState;
use crate::{directory, inbox, log};

/// Stores logs, inboxes and the directory of runs in Redis or Valkey. Clones share the same
/// connections.
///
/// ```no_run
/// use turnstream::hub::Hub;
/// use turnstream_redis::RedisEvents;
///
/// # async fn example() -> Result<(), turnstream::Error> {
/// let events = RedisEvents::connect("redis://127.0.0.1/").await?;
/// let hub = Hub::builder().with_backend(events.clone(), events).build();
/// # Ok(())
/// # }
/// ```
///
/// A `RedisEvents` value uses two connections and two tasks, which end once all clones, readers and
/// hubs that use the value have been dropped. A lost connection is re-established automatically.
/// Until the connection is re-established, all operations fail within about a second, with an error
/// that has [`LogUnavailable`](turnstream::hub::LogUnavailable) as its source.
///
/// Dropping the future of [`connect`](Self::connect) closes the connections. Dropping the future of
/// any other operation does not cancel a request that was already sent: entries may still be
/// appended, and a command may still reach its run.
///
/// Appending any number of entries takes one round trip. The readers in a process share a single
/// copy of each log, so the server sends each entry only once per process. A reader that does not
/// keep up is cut off, as with [`SlowReaders::Cut`](turnstream::hub::SlowReaders::Cut).
///
/// If an error ends a run, readers in other processes receive the error's kind and message, but not
/// its sources.
#[derive(Clone)]
pub struct RedisEvents(Arc<RedisTasks>);

struct RedisTasks {
    shared: Arc<SharedState>,
    outbox: Outbox,
    runtime: Handle,
    _tasks: [OwnedTask; 2],
}

impl RedisEvents {
    /// Connects to the server at `url` with the default [options](RedisOptions).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`RedisOptions::connect`].
    ///
    /// # Panics
    ///
    /// Panics if called outside of a tokio runtime.
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        RedisOptions::new(url).connect().await
    }

    /// Attaches another reader to a run's log.
    fn attach(&self, run: &str) -> AttachedReader {
        let shared = &self.0.shared;
        let mut state = shared.state();
        let mirror =
            state.mirrors.entry(run.to_owned()).or_insert_with(|| Arc::new(Mirror::new(run)));
        mirror.add_reader(|number| {
            OwnedTask::spawn(
                follow(Arc::clone(mirror), Arc::clone(shared), number),
                &self.0.runtime,
            )
        });
        AttachedReader { events: self.clone(), mirror: Arc::clone(mirror) }
    }
}

impl RedisOptions {
    /// Connects to the server.
    ///
    /// Dropping the future closes the connections.
    ///
    /// # Errors
    ///
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest) if the address cannot be parsed or requires
    ///   a crate feature that is not enabled;
    /// - [`Store`](ErrorKind::Store) if the server rejects the connection;
    /// - [`Store`](ErrorKind::Store) with [`LogUnavailable`](turnstream::hub::LogUnavailable) as
    ///   its source if the server cannot be reached.
    ///
    /// # Panics
    ///
    /// Panics if called outside of a tokio runtime.
    pub async fn connect(self) -> Result<RedisEvents, Error> {
        let client = Client::open(&*self.url).map_err(|error| {
            Error::new(ErrorKind::InvalidRequest, "the address of redis cannot be used")
                .with_source(error)
        })?;
        let runtime = Handle::current();
        let shared = Arc::new(SharedState::new(client, self));
        let wakeups = Arc::clone(&shared.wakeups).drive(shared.client.clone());
        let beats = beat_for_ever(Arc::clone(&shared));
        let tasks = [OwnedTask::spawn(wakeups, &runtime), OwnedTask::spawn(beats, &runtime)];
        let outbox = Outbox::spawn_on(&runtime);
        let events = RedisEvents(Arc::new(RedisTasks { shared, outbox, runtime, _tasks: tasks }));
        let ping: Result<redis::Value, Error> =
            events.0.shared.connection.query(&redis::cmd("PING")).await;
        ping?;
        Ok(events)
    }
}

/// A guard that counts as one reader of a log until the guard is dropped.
struct AttachedReader {
    events: RedisEvents,
    mirror: Arc<Mirror>,
}

impl Drop for AttachedReader {
    fn drop(&mut self) {
        let mut state = self.events.0.shared.state();
        let run = &*self.mirror.run;
        let is_unneeded = self.mirror.remove_reader();
        if is_unneeded
            && state.mirrors.get(run).is_some_and(|other| Arc::ptr_eq(other, &self.mirror))
        {
            state.mirrors.remove(run);
        }
    }
}

impl EventLog for RedisEvents {
    fn begin<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<u64, Error>> {
        log::begin(&self.0.shared, run).boxed()
    }

    fn append(
        &self,
        entries: Vec<LogEntry>,
        trim_before: Option<EventNumber>,
    ) -> BoxFuture<'_, Result<(), Error>> {
        log::append(&self.0.shared, entries, trim_before).boxed()
    }

    fn read(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> BoxStream<'static, Result<LogEntry, Error>> {
        let attached = self.attach(run);
        let log = Arc::clone(&attached.mirror.log);
        let entries = match attached.mirror.is_loaded() {
            true => log.read(run, after),
            false => {
                let (mirror, run) = (Arc::clone(&attached.mirror), run.to_owned());
                let after = after.cloned();
                let reader = async move {
                    mirror.wait_until_loaded().await?;
                    Ok::<_, Error>(log.read(&run, after.as_ref()))
                };
                once(reader).try_flatten().boxed()
            }
        };
        // The stream owns `attached`, so the reader is counted as long as the stream exists.
        let entries = entries.inspect(move |_| {
            let _held = &attached;
        });
        entries.boxed()
    }

    fn remove(&self, run: &str, epoch: u64) {
        let mut state = self.0.shared.state();
        let own = state.mirrors.get(run).and_then(|mirror| mirror.own_attempt());
        let Some(own) = own.filter(|own| own.epoch == epoch) else { return };
        let Some(mirror) = state.mirrors.remove(run) else { return };
        drop(state);
        let has_ended = mirror.log.has_ended();
        mirror.remove();
        let (shared, run) = (Arc::clone(&self.0.shared), run.to_owned());
        self.0.outbox.put(async move { log::remove(&shared, &run, &own, has_ended).await });
    }

    fn directory(&self) -> Option<Arc<dyn RunDirectory>> {
        Some(Arc::new(self.clone()))
    }

    /// Counts only the logs in this process: the logs of the process's own runs, and of other runs
    /// that the process reads.
    fn stats(&self) -> LogStats {
        let mirrors: Vec<Arc<Mirror>> = self.0.shared.state().mirrors.values().cloned().collect();
        let lengths = || mirrors.iter().map(|mirror| mirror.log.entry_count());
        let mut stats = LogStats::default();
        stats.entries = lengths().sum();
        stats.fullest = lengths().max().unwrap_or(0);
        stats.cut_readers = self.0.shared.cut_readers();
        stats
    }
}

impl CommandInbox for RedisEvents {
    fn open<'a>(
        &'a self,
        run: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, SentCommand>, Error>> {
        inbox::open(&self.0.shared, &self.0.outbox, run).boxed()
    }

    fn send<'a>(
        &'a self,
        run: &'a str,
        id: String,
        command: Command,
    ) -> BoxFuture<'a, Result<InputReceipt, Error>> {
        inbox::send(&self.0.shared, run, id, command).boxed()
    }
}

impl RunDirectory for RedisEvents {
    fn announce<'a>(&'a self, key: &'a str, run: &'a str) -> BoxFuture<'a, Result<u64, Error>> {
        directory::announce(&self.0.shared, key, run).boxed()
    }

    fn announce_ended<'a>(
        &'a self,
        key: &'a str,
        run: &'a str,
        age: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        directory::announce_ended(&self.0.shared, key, run, age).boxed()
    }

    fn end(&self, key: &str, run: &str, order: u64) {
        let mut state = self.0.shared.state();
        if state.announced.get(run).is_some_and(|here| here.order == order) {
            state.announced.remove(run);
        }
        drop(state);
        let shared = Arc::clone(&self.0.shared);
        let (key, run) = (key.to_owned(), run.to_owned());
        self.0.outbox.put(async move { directory::end(&shared, &key, &run, order).await });
    }

    fn last<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<AnnouncedRun>, Error>> {
        directory::last(&self.0.shared, key).boxed()
    }

    fn next<'a>(&'a self, key: &'a str, seen: u64) -> BoxFuture<'a, Result<AnnouncedRun, Error>> {
        directory::next(&self.0.shared, key, seen).boxed()
    }

    fn settle_time(&self) -> Duration {
        self.0.shared.settings.lease
    }

    fn lost(&self) -> BoxFuture<'_, Result<Vec<LostRun>, Error>> {
        directory::lost(&self.0.shared).boxed()
    }

    fn claim<'a>(&'a self, lost: &'a LostRun) -> BoxFuture<'a, Result<bool, Error>> {
        directory::claim(&self.0.shared, lost).boxed()
    }
}

impl fmt::Debug for RedisEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.0.shared.settings;
        f.debug_struct("RedisEvents").field("options", options).finish_non_exhaustive()
    }
}
