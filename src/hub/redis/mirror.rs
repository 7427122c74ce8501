//! The log of a run as this process has it.

use std::sync::{Arc, Mutex};

use redis::streams::StreamRangeReply;
use tokio::sync::watch;

use crate::error::{Error, ErrorKind};
use crate::hub::redis::entry_json::{StreamEntry, decode};
use crate::hub::redis::inner::Inner;
use crate::hub::run_log::RunLog;
use crate::hub::{EventNumber, LogEntry, LogUnavailable, NotRunning, RunLost};
use crate::lock::lock_ignoring_poison;
use crate::task::OwnedTask;

/// So many entries are read at once.
const PAGE: usize = 256;

/// The log of a run as this process has it: what its own run has appended, and what it has read of a run elsewhere.
/// All readers of this process share it.
pub(super) struct Mirror {
    pub(super) run: Arc<str>,
    pub(super) log: Arc<RunLog>,
    state: Mutex<MirrorState>,
    /// How the first look at the log has ended.
    loaded: watch::Sender<Option<Result<(), Error>>>,
}

#[derive(Default)]
struct MirrorState {
    own: Option<OwnAttempt>,
    readers: usize,
    /// Reads the log while there are readers.
    follower: Option<OwnedTask>,
    is_removed: bool,
}

/// An attempt of this process.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct OwnAttempt {
    pub(super) epoch: u64,
    /// The epoch and a token, which nobody else has.
    pub(super) owner: String,
}

impl Mirror {
    pub(super) fn new(run: &str) -> Self {
        Self {
            run: run.into(),
            log: Arc::default(),
            state: Mutex::default(),
            loaded: watch::Sender::new(None),
        }
    }

    /// This process has begun an attempt.
    pub(super) fn own(&self, own: OwnAttempt) {
        let mut log = self.log.lock();
        log.set_epoch(own.epoch);
        log.reopen();
        drop(log);
        lock_ignoring_poison(&self.state).own = Some(own);
        self.set_loaded(Ok(()));
    }

    pub(super) fn own_attempt(&self) -> Option<OwnAttempt> {
        lock_ignoring_poison(&self.state).own.clone()
    }

    /// Ends the log for the readers of this process.
    pub(super) fn remove(&self) {
        let mut state = lock_ignoring_poison(&self.state);
        (state.is_removed, state.own) = (true, None);
        self.log.lock().close(dropped_error());
    }

    pub(super) fn is_loaded(&self) -> bool {
        matches!(&*self.loaded.borrow(), Some(Ok(())))
    }

    /// Waits for the first look at the log.
    pub(super) async fn wait_until_loaded(&self) -> Result<(), Error> {
        let mut loaded = self.loaded.subscribe();
        match loaded.wait_for(Option::is_some).await {
            Ok(loaded) => loaded.clone().unwrap_or(Ok(())),
            // Never: it is here.
            Err(_) => Ok(()),
        }
    }

    fn set_loaded(&self, loaded: Result<(), Error>) {
        if !self.is_loaded() {
            self.loaded.send_replace(Some(loaded));
        }
    }

    /// Adds entries that are not there yet. Returns how many readers are cut.
    pub(super) fn feed(&self, entries: Vec<LogEntry>, trim_before: Option<&EventNumber>) -> u64 {
        let mut log = self.log.lock();
        let last = log.last_position();
        let new: Vec<LogEntry> = (entries.into_iter())
            .filter(|entry| last.is_none_or(|last| entry.number.position() > last))
            .collect();
        if let Some(entry) = new.last() {
            let epoch = entry.number.epoch().max(log.epoch());
            log.set_epoch(epoch);
        }
        log.append(new, trim_before)
    }

    /// Counts a reader. The first one of a log needs a follower.
    pub(super) fn add_reader(&self, follower: impl FnOnce() -> OwnedTask) {
        let mut state = lock_ignoring_poison(&self.state);
        state.readers += 1;
        if state.follower.is_none() {
            self.log.lock().set_outage(None);
            state.follower = Some(follower());
        }
    }

    /// Returns whether the log is not needed any more.
    pub(super) fn remove_reader(&self) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        state.readers -= 1;
        if state.readers > 0 {
            return false;
        }
        let (follower, is_unneeded) = (state.follower.take(), state.own.is_none());
        drop(state);
        drop(follower);
        is_unneeded
    }

    /// Reads what is new, whenever there is something.
    pub(super) fn follow(
        self: Arc<Self>,
        inner: Arc<Inner>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let end = FollowerEnd(self);
        async move { end.0.follow_for_ever(&inner).await }
    }

    async fn follow_for_ever(&self, inner: &Inner) {
        let mut listener = inner.wakeups.listen(inner.keys.log(&self.run));
        loop {
            match self.fetch(inner).await {
                Ok(()) => self.log.lock().set_outage(None),
                Err(error) => {
                    self.log.lock().set_outage(Some(error.clone()));
                    self.set_loaded(Err(error));
                }
            }
            // A message that tells of entries that are there is none.
            while let Some(news) = listener.wait(inner.settings.beat()).await {
                let last = self.log.lock().last_position();
                let told = news.message.as_deref().and_then(parse_id);
                if told.is_none_or(|told| last.is_none_or(|last| told > last)) {
                    break;
                }
            }
        }
    }

    async fn fetch(&self, inner: &Inner) -> Result<(), Error> {
        let last = self.log.lock().last_position();
        let mut from = last.map_or("-".to_owned(), |(epoch, number)| format!("({epoch}-{number}"));
        loop {
            let mut pipeline = redis::pipe();
            // First: a run that has ended is not alive either.
            pipeline.get(inner.keys.alive(&self.run));
            pipeline.xrange_count(inner.keys.log(&self.run), &from, "+", PAGE);
            let (alive, page): (Option<String>, StreamRangeReply) =
                inner.connection.pipeline(&pipeline).await?;
            let count = page.ids.len();
            if let Some(last) = page.ids.last() {
                from = format!("({}", last.id);
            }
            let is_dropped = self.feed_page(inner, page);
            if count == PAGE {
                continue;
            }
            self.judge(alive.is_some(), is_dropped);
            return Ok(());
        }
    }

    /// Returns whether the run was dropped. What another program wrote is passed over.
    fn feed_page(&self, inner: &Inner, page: StreamRangeReply) -> bool {
        let (mut entries, mut trim_before, mut is_dropped) = (Vec::new(), None, false);
        for id in page.ids {
            let Some((epoch, number)) = parse_id(&id.id) else { continue };
            let number = EventNumber::new(Arc::clone(&self.run), epoch, number);
            let json: Vec<u8> = id.get("e").unwrap_or_default();
            match decode(number, &json) {
                Some(StreamEntry::Entry(entry)) => {
                    if let Some((epoch, number)) =
                        id.get::<String>("t").as_deref().and_then(parse_id)
                    {
                        inner.count_cut_readers(
                            self.feed(std::mem::take(&mut entries), trim_before.as_ref()),
                        );
                        trim_before = Some(EventNumber::new(Arc::clone(&self.run), epoch, number));
                    }
                    is_dropped = false;
                    entries.push(entry);
                }
                Some(StreamEntry::Dropped) => is_dropped = true,
                None => {}
            }
        }
        inner.count_cut_readers(self.feed(entries, trim_before.as_ref()));
        is_dropped
    }

    /// Decides whether more can come.
    fn judge(&self, is_alive: bool, is_dropped: bool) {
        let state = lock_ignoring_poison(&self.state);
        let mut log = self.log.lock();
        let is_empty = log.last_position().is_none();
        let run = || self.run.to_string();
        match () {
            () if state.is_removed || state.own.is_some() => {}
            () if is_dropped => log.close(dropped_error()),
            () if log.has_ended() => {}
            () if is_alive => log.reopen(),
            () if is_empty => log.close(NotRunning { run: run() }.into()),
            () => log.close(RunLost { run: run() }.into()),
        }
        drop((log, state));
        // Nothing was appended yet: its readers wait for the first entry.
        if !(is_empty && is_alive) {
            self.set_loaded(Ok(()));
        }
    }
}

/// A reader that is still there when its follower ends has lost the runtime.
struct FollowerEnd(Arc<Mirror>);

impl Drop for FollowerEnd {
    fn drop(&mut self) {
        self.0.log.lock().set_outage(Some(LogUnavailable.into()));
        self.0.set_loaded(Err(LogUnavailable.into()));
    }
}

fn dropped_error() -> Error {
    Error::new(ErrorKind::Other, "the run was dropped")
}

/// Reads the id of an entry.
pub(super) fn parse_id(id: &str) -> Option<(u64, u64)> {
    let (epoch, number) = id.split_once('-')?;
    Some((epoch.parse().ok()?, number.parse().ok()?))
}
