//! Starts runs, one at a time in each session.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use futures::StreamExt;
use turnstream::agent::{Budget, Pool};
use turnstream::env::{Ids, SystemIds};
use turnstream::event::RewriteReason;
use turnstream::hub::{
    AlreadyRunning, Hub, LogUnavailable, Reader, Reservation, RunOwner, RunSource, ShuttingDown,
};
use turnstream::item::{Content, Item};
use turnstream::session::{AlreadyLeased, Entry, LeaseLost, Session, restore_history};
use turnstream::trace::Trace;
use turnstream::{Agent, Error, ErrorKind, Event};

use super::chat_server::{Busy, ChatServer};
use super::failure::Failure;
use super::open_session::OpenSession;
use super::requests::WaitingCalls;
use super::run_observer::RunObserver;
use super::run_records::{RunEnd, RunRecord};
use super::start::{NewRun, Start, Started};
use crate::authorize::Principal;
use crate::slots::{Full, Maximum, Slot};

/// The delay before a request is retried on a session that another process is running.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The delay before a request is retried on a store or a log that has failed.
pub(super) const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);

impl ChatServer {
    /// Starts a run with the user's message, or continues the unfinished run if there is no
    /// message. A repeated request with the same key starts no second run.
    pub(super) async fn start_once(
        &self,
        principal: &Principal,
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
            _ if key.is_some() && has_begun(&self.0.hub, &run_id).await => {
                Started { run: run_id, is_queued: false }
            }
            Some(text) => {
                self.start_or_queue(principal, open, text.into(), waiting_calls, run_id).await?
            }
            None => {
                let place = self.0.hub.reserve(open.session.id())?;
                let slot = self.admit_run(principal, open).await?;
                let start = Start::Resume(Vec::new());
                let run = new_run(self.0.agent.clone(), principal, start, run_id, slot);
                let owner = begin(self, open, place, run).await?;
                Started { run: owner.detach(), is_queued: false }
            }
        };
        if let Some(key) = key {
            keys.add(key, text.as_deref(), started.clone());
        }
        Ok(started)
    }

    async fn start_or_queue(
        &self,
        principal: &Principal,
        open: &Arc<OpenSession>,
        content: Content,
        waiting_calls: WaitingCalls,
        run_id: String,
    ) -> Result<Started, Failure> {
        let reserved = self.0.hub.reserve(open.session.id());
        let mut calls = WaitingCalls::Keep;
        match &reserved {
            Ok(_) => {
                open.check_waiting_calls(waiting_calls)?;
                if open.count_waiting_calls() > 0 {
                    calls = WaitingCalls::GiveUp;
                }
            }
            // A message that waits now would be lost.
            Err(error) if error.find_source::<ShuttingDown>().is_some() => {
                return Err(error.clone().into());
            }
            Err(_) => {}
        }
        // A new message does not overtake queued ones.
        if open.queue.is_active() {
            drop(reserved);
            return self.enqueue(principal, open, content, run_id, calls);
        }
        let begun = match reserved {
            Ok(place) => {
                let slot = self.admit_run(principal, open).await?;
                let start = Start::Say(vec![Item::user(content.clone())]);
                let run_id = run_id.clone();
                let run = new_run(self.0.agent.clone(), principal, start, run_id, slot);
                begin(self, open, place, run).await
            }
            Err(error) => Err(error),
        };
        match begun {
            Ok(owner) => Ok(Started { run: owner.detach(), is_queued: false }),
            Err(error) if self.0.busy == Busy::Queue && is_busy_elsewhere(&error) => {
                self.enqueue(principal, open, content, run_id, calls)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Starts a run of this agent, with the principal's budget, immediately. Also returns a reader
    /// from its start. If the returned future is dropped, the run may still start.
    pub(super) async fn start(
        &self,
        principal: &Principal,
        open: &Arc<OpenSession>,
        agent: Agent,
        start: Start,
    ) -> Result<(Reader, Started), Failure> {
        let place = self.0.hub.reserve(open.session.id())?;
        let slot = self.admit_run(principal, open).await?;
        let (server, open) = (self.clone(), Arc::clone(open));
        let run = new_run(agent, principal, start, SystemIds.next_id(), slot);
        // A client that disconnects must not separate the tombstones of an answer from the run that
        // replaces it. A shutdown waits for the run, because its key is reserved.
        let begun = tokio::spawn(async move {
            let owner = begin(&server, &open, place, run).await?;
            let reader = owner.read();
            Ok::<_, Error>((reader, Started { run: owner.detach(), is_queued: false }))
        });
        Ok(begun.await.map_err(|_| Failure::panicked())??)
    }

    /// Resumes a session whose run was lost, for no principal.
    pub(super) async fn resume_lost(&self, open: &OpenSession) -> Result<(), Error> {
        let place = self.0.hub.reserve(open.session.id())?;
        let run = NewRun {
            agent: self.0.agent.clone(),
            start: Start::Resume(Vec::new()),
            run_id: SystemIds.next_id(),
            slot: None,
            trace_parent: None,
        };
        begin(self, open, place, run).await?.detach();
        Ok(())
    }

    /// Checks the limits and the principal's pool before a run starts.
    async fn admit_run(&self, principal: &Principal, open: &OpenSession) -> Result<Slot, Failure> {
        if principal.budget().and_then(Budget::pool).is_some_and(Pool::is_exhausted) {
            return Err(Failure::too_many("the budget is used up"));
        }
        self.check_limits(principal, open).await
    }

    /// Checks the limits before a run starts.
    pub(super) async fn check_limits(
        &self,
        principal: &Principal,
        open: &OpenSession,
    ) -> Result<Slot, Failure> {
        let (limits, usage) = (&self.0.limits, &self.0.usage);
        let of_principal = principal.max_runs().unwrap_or(limits.max_runs_per_principal);
        let max = Maximum { of_principal, of_all: limits.max_runs };
        let slot = usage.runs.take(principal, 1, max).map_err(|full| match full {
            Full::Principal => Failure::too_many("too many runs at the same time"),
            Full::All => Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too many runs are active"),
        })?;
        usage.starts.add(principal, limits.max_starts_per_minute)?;
        if open.session.version() == 0 {
            self.0.sessions.add_session(principal, limits).await?;
        }
        Ok(slot)
    }
}

/// Describes a run of an agent for a principal, with the principal's budget.
pub(super) fn new_run(
    agent: Agent,
    principal: &Principal,
    start: Start,
    run_id: String,
    slot: Slot,
) -> NewRun {
    let agent = match principal.budget() {
        Some(budget) => agent.with_budget(budget.clone()),
        None => agent,
    };
    let trace_parent = principal.trace_parent().cloned();
    NewRun { agent, start, run_id, slot: Some(slot), trace_parent }
}

/// Whether another process is running the session, so that the request may be retried later.
pub(super) fn is_busy_elsewhere(error: &Error) -> bool {
    error.find_source::<AlreadyRunning>().is_some()
        || error.find_source::<AlreadyLeased>().is_some()
}

/// Whether a store or a log has failed, or another program has written to the session, so that the
/// same request may succeed later.
pub(super) fn is_transient(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Store
            | ErrorKind::OutcomeUnknown
            | ErrorKind::Connect
            | ErrorKind::Timeout
            | ErrorKind::Conflict
    ) || error.find_source::<LogUnavailable>().is_some()
}

/// Whether a run with this id has started, in any process, and its log still exists.
async fn has_begun(hub: &Hub, run_id: &str) -> bool {
    matches!(hub.read_any_run(run_id, None).next().await, Some(Ok(_)))
}

/// The position in the history of an entry that is replaced together with all later ones.
async fn replaced_position(session: &Session, entry: u64) -> Result<usize, Error> {
    let refused = |message: &str| Error::new(ErrorKind::InvalidRequest, message);
    let entries = session.entries().await?;
    let at = usize::try_from(entry).unwrap_or(usize::MAX);
    let Some((before, after)) = entries.split_at_checked(at) else {
        return Err(refused("the session has no such entry"));
    };
    let keeps_positions =
        |why| matches!(why, RewriteReason::Tombstoned | RewriteReason::ReasoningRefused);
    let moves_items =
        |entry: &Entry| matches!(entry, Entry::Rewritten { why, .. } if !keeps_positions(*why));
    if after.iter().any(moves_items) {
        return Err(refused("the history was shortened after this entry"));
    }
    Ok(restore_history(session.id(), before.to_vec()).len())
}

/// The first entry after the user's last message, where the answer starts.
pub(super) fn last_answer(entries: &[Entry]) -> Option<u64> {
    let is_said = |entry: &Entry| matches!(entry, Entry::Item(item) if item.as_user().is_some());
    let last = entries.iter().rposition(is_said)?;
    u64::try_from(last + 1).ok()
}

/// The id of a run. A request that is repeated with its key has the same id in every process.
fn new_run_id(open: &OpenSession, key: Option<&str>) -> String {
    let Some(key) = key else { return SystemIds.next_id() };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    // The id contains the session, so that a request cannot take over a run of another session.
    let mut run_id = format!("{}:", open.session.id());
    for byte in key.bytes() {
        match is_plain(byte) {
            true => run_id.push(char::from(byte)),
            // Writing to a string does not fail.
            false => drop(write!(run_id, "_{byte:02x}")),
        }
    }
    run_id
}

/// Creates the run and passes it to the hub.
pub(super) async fn begin(
    server: &ChatServer,
    open: &OpenSession,
    place: Reservation,
    new_run: NewRun,
) -> Result<RunOwner, Error> {
    let NewRun { agent, start, run_id, mut slot, trace_parent } = new_run;
    let session = &open.session;
    let (run, inputs) = match start {
        Start::Resume(verdicts) => (session.resume(&agent, verdicts).await?, 0),
        Start::Say(items) => {
            let inputs = items.len();
            (session.run(&agent, items).await?, inputs as u64)
        }
        Start::Replace { from, items } => {
            let (from, inputs) = (replaced_position(session, from).await?, items.len());
            (session.run_replacing(&agent, from, items).await?, inputs as u64)
        }
    };
    let run = match trace_parent {
        Some(parent) => run.with_data(parent),
        None => run,
    };
    // The assistant's message begins after the input.
    let message_id = format!("{}:{}", session.id(), session.version() + inputs);
    let trace = Trace::new().with_resumed_history(&session.history());
    let (end, mut observer) = (RunEnd::default(), RunObserver::new(session.version()));
    let record =
        RunRecord { run_id: run_id.clone(), message_id, trace: trace.clone(), end: end.clone() };
    open.runs().add(record);
    let lost_leases = Arc::clone(&server.0.sessions.lost_leases);
    let (id, session) = (session.id().to_owned(), session.clone());
    let texts = server.run_texts();
    let source = RunSource::from(run)
        .with_run_id(run_id)
        .inspect(move |event| {
            let shown = texts.event(event);
            let shown = shown.as_ref().unwrap_or(event);
            trace.observe(shown);
            // An event is stored before the run yields it.
            if let Some(run) = observer.observe(shown, session.version()) {
                end.set(run);
            }
            if let Event::Finished(_) = event {
                slot.take();
            }
        })
        .inspect_err(move |error| {
            if error.find_source::<LeaseLost>().is_some() {
                lost_leases.add(&id);
            }
        });
    place.start(source).await
}
