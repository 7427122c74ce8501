//! Starts runs, one at a time in each session.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use futures::StreamExt;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use turnstream::env::{Ids, SystemIds};
use turnstream::event::RewriteReason;
use turnstream::hub::{HubEvent, Reservation, RunOwner, RunSource};
use turnstream::item::{Content, Item, PendingCall};
use turnstream::session::{Entry, LeaseLost, Session, SessionState, restore_history};
use turnstream::tool::Verdict;
use turnstream::trace::Trace;
use turnstream::{Agent, Error, ErrorKind};

use crate::app::App;
use crate::cluster;
use crate::failure::Failure;
use crate::flags::Busy;
use crate::requests::WaitingCalls;
use crate::run_observer::RunObserver;
use crate::traces::{RunEnd, RunRecord, RunRecords};

/// The maximum number of active runs.
const MAX_RUNS: usize = 64;

/// The maximum number of a session's messages that wait while a run is active.
const MAX_QUEUED: usize = 8;

/// The maximum number of runs that start within a minute.
const MAX_STARTS_PER_MINUTE: usize = 120;

/// How long an idempotency key is remembered, so that it starts no second run.
const KEY_LIFETIME: Duration = Duration::from_mins(10);

/// The number of keys that are remembered per session. A request with another key is refused.
const MAX_KEYS: usize = 1_000;

/// An open session, and this process's state for it.
pub(crate) struct OpenSession {
    pub(crate) session: Session,
    /// Locked while a run starts.
    pub(crate) starting: tokio::sync::Mutex<Keys>,
    pub(crate) runs: Mutex<RunRecords>,
    /// The verdicts that were received while others are missing.
    verdicts: Mutex<Vec<(PendingCall, Verdict)>>,
    queue: Mutex<Queue>,
    /// Notified when the queue no longer waits for verdicts.
    calls_given_up: Notify,
    /// Receives the session's id when a run has lost its lease.
    lost: UnboundedSender<String>,
}

/// The messages that wait for the end of a run, and for the verdicts on calls that wait for
/// approval.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(String, Content)>,
    task: QueueTask,
}

/// The task that starts runs for the queued messages.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum QueueTask {
    #[default]
    Stopped,
    Running,
    /// The task gives up the calls that wait for approval when it starts the next run.
    GivingUpCalls,
}

/// The keys of requests that have started a run.
#[derive(Default)]
pub(crate) struct Keys {
    used: VecDeque<UsedKey>,
    hasher: RandomState,
}

struct UsedKey {
    key: String,
    /// The hash of the request's message, so that large messages are not kept.
    message: u64,
    started: Started,
    at: Instant,
}

/// A run that has started, or that waits for the end of another.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Started {
    pub(crate) run: String,
    pub(crate) is_queued: bool,
}

/// The input that a run starts with.
pub(crate) enum Start {
    Say(Vec<Item>),
    Resume(Vec<(PendingCall, Verdict)>),
    /// Tombstones this entry and all after it. Then the items are added, or the model answers
    /// again.
    Replace {
        from: u64,
        items: Vec<Item>,
    },
}

impl OpenSession {
    pub(crate) fn new(session: Session, lost: UnboundedSender<String>) -> Self {
        Self {
            session,
            lost,
            starting: tokio::sync::Mutex::default(),
            runs: Mutex::default(),
            verdicts: Mutex::default(),
            queue: Mutex::default(),
            calls_given_up: Notify::new(),
        }
    }

    /// Returns whether the session may be closed without forgetting an idempotency key.
    pub(crate) fn has_no_keys(&self) -> bool {
        let Ok(mut keys) = self.starting.try_lock() else { return false };
        keys.remove_expired();
        keys.used.is_empty()
    }

    pub(crate) fn runs(&self) -> MutexGuard<'_, RunRecords> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a message that would give up calls that wait for approval, unless it says so. No run
    /// is active.
    fn check_waiting_calls(&self, waiting_calls: WaitingCalls) -> Result<(), Failure> {
        match (waiting_calls, self.count_waiting_calls()) {
            (WaitingCalls::GiveUp, _) | (WaitingCalls::Keep, 0) => Ok(()),
            (WaitingCalls::Keep, count) => Err(Failure::calls_wait(count)),
        }
    }

    fn count_waiting_calls(&self) -> usize {
        match self.session.state() {
            SessionState::Pending { calls } => calls.len(),
            SessionState::Idle | SessionState::Unfinished { .. } => 0,
        }
    }

    /// Adds verdicts. Returns all of them if none is missing, or else the number of missing ones.
    ///
    /// The calls have to be pending, with the arguments that the user has seen.
    pub(crate) fn add_verdicts(
        &self,
        given: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<Result<Vec<(PendingCall, Verdict)>, usize>, Failure> {
        let SessionState::Pending { calls } = self.session.state() else {
            return Err(Failure::conflict("no call is waiting for a verdict"));
        };
        let given: Vec<(PendingCall, Verdict)> = given.into_iter().collect();
        if given.iter().any(|(call, _)| !calls.contains(call)) {
            return Err(Failure::conflict(
                "this call is not waiting for a verdict, or has other arguments",
            ));
        }
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.retain(|(known, _)| calls.contains(known));
        for (call, verdict) in given {
            verdicts.retain(|(known, _)| *known != call);
            verdicts.push((call, verdict));
        }
        let missing = calls.len() - verdicts.len();
        Ok(if missing == 0 { Ok(verdicts.clone()) } else { Err(missing) })
    }

    /// Clears the verdicts after they were passed to a run.
    pub(crate) fn clear_verdicts(&self) {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Keys {
    /// Returns the run that was started by a request with this key, if any.
    fn find(&mut self, key: &str, text: Option<&str>) -> Result<Option<Started>, Failure> {
        self.remove_expired();
        match self.used.iter().find(|used| used.key == key) {
            Some(used) if used.message != self.hasher.hash_one(text) => {
                let message = "another request used this `idempotency-key`";
                Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, message))
            }
            None if self.used.len() >= MAX_KEYS => {
                Err(Failure::too_many("too many runs were started with an `idempotency-key`"))
            }
            used => Ok(used.map(|used| used.started.clone())),
        }
    }

    fn add(&mut self, key: String, text: Option<&str>, started: Started) {
        let message = self.hasher.hash_one(text);
        self.used.push_front(UsedKey { key, message, started, at: Instant::now() });
    }

    fn remove_expired(&mut self) {
        self.used.retain(|used| used.at.elapsed() < KEY_LIFETIME);
    }
}

/// The times at which the last runs started.
#[derive(Default)]
pub(crate) struct StartRate(Mutex<VecDeque<Instant>>);

impl StartRate {
    fn check(&self) -> Result<(), Failure> {
        let mut starts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = Duration::from_mins(1);
        starts.retain(|start| start.elapsed() < minute);
        if starts.len() >= MAX_STARTS_PER_MINUTE {
            return Err(Failure::too_many("too many runs were started in the last minute"));
        }
        starts.push_back(Instant::now());
        Ok(())
    }
}

impl App {
    /// Starts a run with the user's message, or continues the unfinished run if there is no
    /// message. A repeated request with the same key starts no second run.
    pub(crate) async fn start_once(
        self: &Arc<Self>,
        open: &Arc<OpenSession>,
        text: Option<String>,
        waiting_calls: WaitingCalls,
        key: Option<String>,
    ) -> Result<Started, Failure> {
        let mut keys = open.starting.lock().await;
        if let Some(key) = &key
            && let Some(started) = keys.find(key, text.as_deref())?
        {
            return Ok(started);
        }
        let run_id = new_run_id(open, key.as_deref());
        let started = match text.clone() {
            // Another process has received the same request.
            _ if key.is_some() && cluster::has_begun(&self.hub, &run_id).await => {
                Started { run: run_id, is_queued: false }
            }
            Some(text) => self.start_or_queue(open, text.into(), waiting_calls, run_id).await?,
            None => {
                let place = self.hub.reserve(open.session.id())?;
                self.check_limits(open).await?;
                let start = Start::Resume(Vec::new());
                let owner = begin(open, place, &self.agent, start, run_id).await?;
                Started { run: owner.detach(), is_queued: false }
            }
        };
        if let Some(key) = key {
            keys.add(key, text.as_deref(), started.clone());
        }
        Ok(started)
    }

    async fn start_or_queue(
        self: &Arc<Self>,
        open: &Arc<OpenSession>,
        content: Content,
        waiting_calls: WaitingCalls,
        run_id: String,
    ) -> Result<Started, Failure> {
        let reserved = self.hub.reserve(open.session.id());
        let mut gives_up_calls = false;
        if reserved.is_ok() {
            open.check_waiting_calls(waiting_calls)?;
            gives_up_calls = open.count_waiting_calls() > 0;
        }
        // A new message does not overtake queued ones.
        if open.queue().task != QueueTask::Stopped {
            drop(reserved);
            let started = self.enqueue(open, content, run_id)?;
            if gives_up_calls {
                open.queue().task = QueueTask::GivingUpCalls;
                open.calls_given_up.notify_one();
            }
            return Ok(started);
        }
        let begun = match reserved {
            Ok(place) => {
                self.check_limits(open).await?;
                let start = Start::Say(vec![Item::user(content.clone())]);
                begin(open, place, &self.agent, start, run_id.clone()).await
            }
            Err(error) => Err(error),
        };
        match begun {
            Ok(owner) => Ok(Started { run: owner.detach(), is_queued: false }),
            Err(error) if self.busy == Busy::Queue && cluster::is_busy_elsewhere(&error) => {
                self.enqueue(open, content, run_id)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Starts a run of this agent immediately.
    pub(crate) async fn begin_now(
        &self,
        open: &OpenSession,
        agent: &Agent,
        start: Start,
    ) -> Result<RunOwner, Error> {
        let place = self.hub.reserve(open.session.id())?;
        begin(open, place, agent, start, SystemIds.next_id()).await
    }

    /// Starts a run of this agent immediately. The returned owner is detached: dropping it does not
    /// drop the run.
    pub(crate) async fn start(
        &self,
        open: &OpenSession,
        agent: &Agent,
        start: Start,
    ) -> Result<(turnstream::hub::Reader, Started), Failure> {
        let place = self.hub.reserve(open.session.id())?;
        self.check_limits(open).await?;
        if let Start::Replace { from, .. } = &start {
            void_from(&open.session, *from).await?;
        }
        let owner = begin(open, place, agent, start, SystemIds.next_id()).await?;
        let reader = owner.read();
        Ok((reader, Started { run: owner.detach(), is_queued: false }))
    }

    async fn check_limits(&self, open: &OpenSession) -> Result<(), Failure> {
        if self.hub.stats().runs >= MAX_RUNS {
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too many runs are active"));
        }
        self.check_session_count(&open.session).await?;
        self.starts.check()
    }

    fn enqueue(
        self: &Arc<Self>,
        open: &Arc<OpenSession>,
        content: Content,
        run_id: String,
    ) -> Result<Started, Failure> {
        let mut queue = open.queue();
        if queue.waiting.len() >= MAX_QUEUED {
            return Err(Failure::too_many("too many messages are waiting for this run to end"));
        }
        queue.waiting.push_back((run_id.clone(), content));
        if queue.task == QueueTask::Stopped {
            queue.task = QueueTask::Running;
            tokio::spawn(serve_queue(Arc::clone(self), Arc::clone(open)));
        }
        Ok(Started { run: run_id, is_queued: true })
    }
}

/// Tombstones all entries from this one on, so that the next run replaces them.
async fn void_from(session: &Session, entry: u64) -> Result<(), Failure> {
    let entries = session.entries().await?;
    let at = usize::try_from(entry).unwrap_or(usize::MAX);
    let Some((before, after)) = entries.split_at_checked(at) else {
        return Err(Failure::conflict("the session has no such entry"));
    };
    let keeps_positions =
        |why| matches!(why, RewriteReason::Tombstoned | RewriteReason::ReasoningRefused);
    let moves_items =
        |entry: &Entry| matches!(entry, Entry::Rewritten { why, .. } if !keeps_positions(*why));
    if after.iter().any(moves_items) {
        return Err(Failure::conflict("the history was shortened after this entry"));
    }
    let first = restore_history(session.id(), before.to_vec()).len();
    Ok(session.tombstone(first..session.history().len()).await?)
}

/// The first entry after the user's last message, where the answer starts.
pub(crate) fn last_answer(entries: &[Entry]) -> Option<u64> {
    let is_said = |entry: &Entry| matches!(entry, Entry::Item(item) if item.as_user().is_some());
    let last = entries.iter().rposition(is_said)?;
    u64::try_from(last + 1).ok()
}

/// Starts the queued messages in order, each when the previous run has ended, in this process or in
/// another one, and when no call waits for approval.
async fn serve_queue(app: Arc<App>, open: Arc<OpenSession>) {
    loop {
        let place = app.hub.reserve_when_free(open.session.id()).await;
        let place = match place {
            Ok(place) => app.refresh(&open.session).await.map(|()| place),
            Err(error) => Err(error),
        };
        let ((run_id, content), task) = {
            let mut queue = open.queue();
            let next = queue.waiting.front().cloned();
            let task = if next.is_some() { QueueTask::Running } else { QueueTask::Stopped };
            let task = std::mem::replace(&mut queue.task, task);
            let Some(next) = next else { return };
            (next, task)
        };
        let begun = match place {
            Ok(place) if open.count_waiting_calls() > 0 && task != QueueTask::GivingUpCalls => {
                drop(place);
                if let Err(error) = calls_answered(&app, &open).await {
                    eprintln!("queued messages were not sent: {error}");
                    *open.queue() = Queue::default();
                    return;
                }
                continue;
            }
            Ok(place) => {
                let start = Start::Say(vec![Item::user(content)]);
                begin(&open, place, &app.agent, start, run_id).await
            }
            Err(error) => Err(error),
        };
        match begun {
            Ok(owner) => drop(owner.detach()),
            Err(error) if cluster::is_busy_elsewhere(&error) => {
                tokio::time::sleep(cluster::RETRY_DELAY).await;
                continue;
            }
            Err(error) if matches!(error.kind(), ErrorKind::Store | ErrorKind::OutcomeUnknown) => {
                eprintln!("a queued message is still waiting: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            Err(error) => eprintln!("a queued message was not sent: {error}"),
        }
        open.queue().waiting.pop_front();
    }
}

/// Waits until the calls that wait for approval are resumed, in any process, or given up.
async fn calls_answered(app: &App, open: &OpenSession) -> Result<(), Error> {
    let mut events = app.hub.read_session(&open.session, None);
    let answered = async {
        while let Some(event) = events.next().await {
            match event? {
                HubEvent::Snapshot { snapshot, .. }
                    if snapshot.run().is_none() && !snapshot.pending_calls().is_empty() => {}
                _ => return Ok(()),
            }
        }
        Err(Error::new(ErrorKind::Other, "the session cannot be read"))
    };
    tokio::select! {
        answered = answered => answered,
        () = open.calls_given_up.notified() => Ok(()),
    }
}

/// The id of a run. A request that is repeated with its key has the same id in every process.
fn new_run_id(open: &OpenSession, key: Option<&str>) -> String {
    let is_plain =
        |key: &&str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match key.filter(is_plain) {
        // The id contains the session, so that a request cannot take over a run of another session.
        Some(key) => format!("{}:{key}", open.session.id()),
        None => SystemIds.next_id(),
    }
}

/// Creates the run and passes it to the hub.
async fn begin(
    open: &OpenSession,
    place: Reservation,
    agent: &Agent,
    start: Start,
    run_id: String,
) -> Result<RunOwner, Error> {
    let session = &open.session;
    let (run, inputs) = match start {
        Start::Resume(verdicts) => (session.resume(agent, verdicts).await?, 0),
        Start::Replace { items, .. } if items.is_empty() => {
            (session.resume(agent, Vec::new()).await?, 0)
        }
        Start::Say(items) | Start::Replace { items, .. } => {
            let inputs = items.len();
            (session.run(agent, items).await?, inputs as u64)
        }
    };
    // The assistant's message begins after the input.
    let message_id = format!("{}:{}", session.id(), session.version() + inputs);
    let trace = Trace::new().with_resumed_history(&session.history());
    let (end, mut observer) = (RunEnd::default(), RunObserver::new(session.version()));
    let record =
        RunRecord { run_id: run_id.clone(), message_id, trace: trace.clone(), end: end.clone() };
    open.runs().add(record);
    let (id, lost, session) = (session.id().to_owned(), open.lost.clone(), session.clone());
    let source = RunSource::from(run)
        .with_run_id(run_id)
        .inspect(move |event| {
            trace.observe(event);
            // An event is stored before the run yields it.
            if let Some(run) = observer.observe(event, session.version()) {
                end.set(run);
            }
        })
        .inspect_err(move |error| {
            if error.find_source::<LeaseLost>().is_some() {
                // The receiver lives as long as the server.
                let _ = lost.send(id.clone());
            }
        });
    place.start(source).await
}
