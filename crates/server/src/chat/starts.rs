//! Starts runs, one at a time in each session.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use futures::StreamExt;
use turnstream::env::{Ids, SystemIds};
use turnstream::event::RewriteReason;
use turnstream::hub::{AlreadyRunning, Hub, Reader, Reservation, RunOwner, RunSource};
use turnstream::item::{Content, Item};
use turnstream::session::{AlreadyLeased, Entry, LeaseLost, Session, restore_history};
use turnstream::trace::Trace;
use turnstream::{Agent, Error, Event};

use super::chat_server::{Busy, ChatServer};
use super::failure::Failure;
use super::open_session::OpenSession;
use super::requests::WaitingCalls;
use super::run_observer::RunObserver;
use super::run_records::{RunEnd, RunRecord};
use super::start::{Start, Started};
use crate::authorize::Principal;
use crate::slots::Slot;

/// The delay before a request is retried on a session that another process is running.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(200);

impl ChatServer {
    /// Returns the agent with the principal's budget.
    pub(super) fn agent_of(&self, principal: &Principal) -> Agent {
        with_budget(self.0.agent.clone(), principal)
    }

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
                let slot = self.check_limits(principal, open).await?;
                let (agent, start) = (self.agent_of(principal), Start::Resume(Vec::new()));
                let owner = begin(self, open, place, &agent, start, run_id, Some(slot)).await?;
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
        let mut gives_up_calls = false;
        if reserved.is_ok() {
            open.check_waiting_calls(waiting_calls)?;
            gives_up_calls = open.count_waiting_calls() > 0;
        }
        // A new message does not overtake queued ones.
        if open.queue.is_active() {
            drop(reserved);
            let started = self.enqueue(principal, open, content, run_id)?;
            if gives_up_calls {
                open.queue.give_up_calls();
            }
            return Ok(started);
        }
        let begun = match reserved {
            Ok(place) => {
                let slot = self.check_limits(principal, open).await?;
                let start = Start::Say(vec![Item::user(content.clone())]);
                let agent = self.agent_of(principal);
                begin(self, open, place, &agent, start, run_id.clone(), Some(slot)).await
            }
            Err(error) => Err(error),
        };
        match begun {
            Ok(owner) => Ok(Started { run: owner.detach(), is_queued: false }),
            Err(error) if self.0.busy == Busy::Queue && is_busy_elsewhere(&error) => {
                self.enqueue(principal, open, content, run_id)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Starts a run of this agent, with the principal's budget, immediately. Also returns a reader
    /// from its start.
    pub(super) async fn start(
        &self,
        principal: &Principal,
        open: &OpenSession,
        agent: Agent,
        start: Start,
    ) -> Result<(Reader, Started), Failure> {
        let place = self.0.hub.reserve(open.session.id())?;
        let slot = self.check_limits(principal, open).await?;
        if let Start::Replace { from, .. } = &start {
            void_from(&open.session, *from).await?;
        }
        let (agent, run_id) = (with_budget(agent, principal), SystemIds.next_id());
        let owner = begin(self, open, place, &agent, start, run_id, Some(slot)).await?;
        let reader = owner.read();
        Ok((reader, Started { run: owner.detach(), is_queued: false }))
    }

    /// Resumes a session whose run was lost, for no principal.
    pub(super) async fn resume_lost(&self, open: &OpenSession) -> Result<(), Error> {
        let place = self.0.hub.reserve(open.session.id())?;
        let (run_id, start) = (SystemIds.next_id(), Start::Resume(Vec::new()));
        begin(self, open, place, &self.0.agent, start, run_id, None).await?.detach();
        Ok(())
    }

    /// Checks the limits before a run starts.
    async fn check_limits(
        &self,
        principal: &Principal,
        open: &OpenSession,
    ) -> Result<Slot, Failure> {
        let limits = &self.0.limits;
        if self.0.hub.stats().runs >= limits.max_runs {
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too many runs are active"));
        }
        let slot = self.0.usage.runs.start_run(principal)?;
        self.0.usage.starts.add(principal, limits.max_starts_per_minute)?;
        if open.session.version() == 0 {
            self.0.sessions.add_session(principal, limits).await?;
        }
        Ok(slot)
    }
}

fn with_budget(agent: Agent, principal: &Principal) -> Agent {
    match principal.budget() {
        Some(budget) => agent.with_budget(budget.clone()),
        None => agent,
    }
}

/// Whether another process is running the session, so that the request may be retried later.
pub(super) fn is_busy_elsewhere(error: &Error) -> bool {
    error.find_source::<AlreadyRunning>().is_some()
        || error.find_source::<AlreadyLeased>().is_some()
}

/// Whether a run with this id has started, in any process, and its log still exists.
async fn has_begun(hub: &Hub, run_id: &str) -> bool {
    matches!(hub.read_any_run(run_id, None).next().await, Some(Ok(_)))
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
pub(super) fn last_answer(entries: &[Entry]) -> Option<u64> {
    let is_said = |entry: &Entry| matches!(entry, Entry::Item(item) if item.as_user().is_some());
    let last = entries.iter().rposition(is_said)?;
    u64::try_from(last + 1).ok()
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

/// Creates the run and passes it to the hub. The slot is free again when the run has ended.
pub(super) async fn begin(
    server: &ChatServer,
    open: &OpenSession,
    place: Reservation,
    agent: &Agent,
    start: Start,
    run_id: String,
    mut slot: Option<Slot>,
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
    let lost_leases = Arc::clone(&server.0.sessions.lost_leases);
    let (id, session) = (session.id().to_owned(), session.clone());
    let source = RunSource::from(run)
        .with_run_id(run_id)
        .inspect(move |event| {
            trace.observe(event);
            // An event is stored before the run yields it.
            if let Some(run) = observer.observe(event, session.version()) {
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
