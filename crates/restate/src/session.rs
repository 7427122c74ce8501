//! Sessions. Each session is an object that executes one run at a time, and another that keeps its
//! copy in a store.

use std::ops::RangeInclusive;

use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use turnstream::durable::storage::{AddedVerdict, GivenVerdicts, SessionStatus, copy_session};
use turnstream::durable::{Attempt, is_attempt_lost};
use turnstream::session::Entry;
use turnstream::{Error, ErrorKind, Item, Outcome};

use crate::engine::RestateEngine;
use crate::errors::{to_handler_error, to_terminal};
use crate::inbox::InboxClient;
use crate::messages::{message, take_page};
use crate::state::{
    count_values, read_changing_session, read_session, state, status, stored_status,
};
use crate::worker_settings::WorkerSettings;

/// The object `Session/{session}`.
pub(crate) struct Session(pub(crate) WorkerSettings);

/// A request to run an agent on new input.
#[derive(Serialize, Deserialize)]
pub(crate) struct RunRequest {
    /// The agent's name.
    pub(crate) agent: String,
    pub(crate) input: Vec<Item>,
}

/// A request to resume a session, with verdicts on its pending calls.
#[derive(Serialize, Deserialize)]
pub(crate) struct ResumeRequest {
    pub(crate) agent: String,
    pub(crate) verdicts: GivenVerdicts,
}

/// A part of a session.
#[derive(Serialize, Deserialize)]
pub(crate) struct HistoryPage {
    pub(crate) entries: Vec<Entry>,
    /// Whether the page contains the session's last entry.
    pub(crate) is_last: bool,
}

impl HistoryPage {
    fn new(mut entries: Vec<Entry>, from: u64) -> Self {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(entries.len());
        let mut rest = entries.split_off(from);
        let entries = take_page(&mut rest);
        Self { entries, is_last: rest.is_empty() }
    }
}

/// A request to append entries from elsewhere to the `at` entries that were imported before.
#[derive(Serialize, Deserialize)]
pub(crate) struct ImportRequest {
    pub(crate) at: u64,
    pub(crate) entries: Vec<Entry>,
}

/// The numbers of values, of at most 64 KiB each, that are read together. Reading fewer values one
/// at a time is faster than calling another handler. More values would exceed the message in which
/// Restate passes them to a handler.
const READ_AT_ONCE: RangeInclusive<usize> = 5..=256;

/// The key of the verdicts on pending calls.
const VERDICTS: &str = "verdicts";

#[restate_sdk::object(
    client_visibility = "pub(crate)",
    lazy_state,
    journal_retention = "1h",
    inactivity_timeout = "15m",
    abort_timeout = "45m",
    invocation_retry_policy(
        initial_interval = "50ms",
        factor = 2.0,
        max_interval = "10s",
        max_attempts = 1_000_000
    )
)]
impl Session {
    /// Runs an agent on new input.
    #[handler]
    async fn run(
        &self,
        ctx: ObjectContext<'_>,
        Json(RunRequest { agent, input }): Json<RunRequest>,
    ) -> HandlerResult<Json<Outcome>> {
        let outcome = self.drive(&ctx, agent, Start::Input(input)).await;
        to_message(outcome)
    }

    /// Continues pending calls or an unfinished run.
    #[handler]
    async fn resume(
        &self,
        ctx: ObjectContext<'_>,
        Json(ResumeRequest { agent, verdicts }): Json<ResumeRequest>,
    ) -> HandlerResult<Json<Outcome>> {
        let outcome = self.drive(&ctx, agent, Start::Verdicts(verdicts)).await;
        if outcome.as_ref().is_err_and(|error| !is_attempt_lost(error)) {
            // Calls that have not started stay pending, and can be given other verdicts.
            ctx.clear(VERDICTS);
        }
        to_message(outcome)
    }

    /// Adds verdicts on pending calls. Once every pending call has a verdict, starts a run that
    /// resumes the calls, and returns the run's id.
    #[handler]
    async fn judge(
        &self,
        ctx: ObjectContext<'_>,
        Json(ResumeRequest { agent, verdicts }): Json<ResumeRequest>,
    ) -> HandlerResult<Json<Option<String>>> {
        // The agent is checked before the verdict is stored, because the run that resumes the calls
        // needs the agent.
        self.0.agent(&agent).map_err(|error| to_terminal(&error))?;
        let mut status = stored_status(&ctx).await.map_err(to_handler_error)?;
        if let Some(killed) = status.run.take() {
            // An operator has killed the session's last run. Only one run of a session is executed
            // at a time.
            let engine = RestateEngine::open(&ctx, agent.clone()).await;
            let mut engine = engine.map_err(to_handler_error)?;
            engine.end_killed(&killed);
            ctx.clear(VERDICTS);
            status = set_status(&ctx, &mut engine, None);
        }
        let given = state(&ctx, VERDICTS).await.map_err(to_handler_error)?;
        let mut given: GivenVerdicts = given.unwrap_or_default();
        for (call, verdict) in verdicts {
            let added = given.add(status.pending_calls(), call, verdict);
            message("all verdicts together", &given).map_err(|error| to_terminal(&error))?;
            if added.map_err(|error| to_terminal(&error))? == AddedVerdict::AllGiven {
                let request = ResumeRequest { agent: agent.clone(), verdicts: given.clone() };
                let resume = ctx.object_client::<SessionClient>(ctx.key()).resume(Json(request));
                let sent = resume.idempotency_key(ctx.invocation_id()).send().await?;
                given.run = Some(sent.invocation_id().to_owned());
            }
        }
        ctx.set(VERDICTS, Json(given.clone()));
        Ok(Json(given.run))
    }

    /// Returns the session's entries, starting with the entry at the given index, up to the size of
    /// a page.
    #[handler(
        journal_retention = "0s",
        invocation_retry_policy(max_attempts = 8, on_max_attempts = "kill")
    )]
    async fn history(
        &self,
        ctx: SharedObjectContext<'_>,
        Json(from): Json<u64>,
    ) -> HandlerResult<Json<HistoryPage>> {
        if READ_AT_ONCE.contains(&count_values(&ctx).await.map_err(to_handler_error)?) {
            let session = ctx.object_client::<SessionClient>(ctx.key());
            return Ok(session.history_at_once(Json(from)).call().await?);
        }
        let entries = read_changing_session(&ctx).await.map_err(to_handler_error)?;
        Ok(Json(HistoryPage::new(entries, from)))
    }

    /// Like `history`, for a session that fits into one message. The values are read together,
    /// which is faster.
    #[handler(
        ingress_private,
        lazy_state = false,
        journal_retention = "0s",
        invocation_retry_policy(max_attempts = 8, on_max_attempts = "kill")
    )]
    async fn history_at_once(
        &self,
        ctx: SharedObjectContext<'_>,
        Json(from): Json<u64>,
    ) -> HandlerResult<Json<HistoryPage>> {
        let (_, entries) = read_session(&ctx).await.map_err(to_handler_error)?;
        Ok(Json(HistoryPage::new(entries, from)))
    }

    /// Returns the session's status.
    #[handler(
        journal_retention = "0s",
        invocation_retry_policy(max_attempts = 8, on_max_attempts = "kill")
    )]
    async fn status(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<Json<SessionStatus>> {
        status(&ctx).await.map(Json).map_err(to_handler_error)
    }

    /// Imports entries from elsewhere. The first request requires an empty session.
    #[handler]
    async fn import(
        &self,
        ctx: ObjectContext<'_>,
        Json(ImportRequest { at, entries }): Json<ImportRequest>,
    ) -> HandlerResult<()> {
        let mut engine =
            RestateEngine::open(&ctx, String::new()).await.map_err(to_handler_error)?;
        if engine.entries().len() as u64 != at {
            let message = match at {
                0 => "the session has entries already",
                _ => "the session was changed during the import",
            };
            return Err(to_terminal(&Error::new(ErrorKind::Conflict, message)).into());
        }
        let imported = engine.import(entries);
        imported.map_err(|error| to_terminal(&error))?;
        set_status(&ctx, &mut engine, None);
        send_update(&ctx);
        Ok(())
    }

    /// Removes the session and the commands that are waiting for its next run.
    #[handler]
    async fn delete(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        ctx.object_client::<InboxClient>(ctx.key()).clear().call().await?;
        ctx.clear_all();
        send_update(&ctx);
        Ok(())
    }

    /// Copies the session to the worker's store. Only [`Copies`] calls this handler.
    #[handler(ingress_private, journal_retention = "0s")]
    async fn copy(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<()> {
        let Some(store) = self.0.copy.clone() else { return Ok(()) };
        let entries = read_changing_session(&ctx).await.map_err(to_handler_error)?;
        let id = ctx.key().to_owned();
        let step = async move || {
            let copied = copy_session(&*store, &id, &entries).await;
            copied.map(drop).map_err(|error| match error.kind() {
                // The store would return the same error for every attempt.
                ErrorKind::InvalidRequest | ErrorKind::Unsupported => to_terminal(&error).into(),
                _ => HandlerError::from(error),
            })
        };
        ctx.run(step).name("copy").await?;
        Ok(())
    }
}

/// Specifies how a run starts.
enum Start {
    Input(Vec<Item>),
    Verdicts(GivenVerdicts),
}

impl Session {
    async fn drive(
        &self,
        ctx: &ObjectContext<'_>,
        name: String,
        start: Start,
    ) -> Result<Outcome, Error> {
        let settings = &self.0;
        let agent = settings.agent(&name)?;
        let mut engine = RestateEngine::open(ctx, name).await?;
        if stored_status(ctx).await?.run.is_some() {
            // An operator has killed the session's last run. Only one run of a session is executed
            // at a time.
            ctx.clear(VERDICTS);
        }
        set_status(ctx, &mut engine, Some(ctx.invocation_id()));
        let entries = engine.entries().to_vec();
        let attempt = match start {
            Start::Input(input) => Attempt::run(&agent, ctx.key(), entries, input),
            Start::Verdicts(verdicts) => Attempt::resume(&agent, ctx.key(), entries, verdicts),
        };
        let outcome = match settings.prepare(attempt, ctx.key(), ctx.invocation_id()) {
            Ok(attempt) => drive(settings, attempt, ctx.key(), &mut engine).await,
            Err(error) => Err(error),
        };
        if outcome.as_ref().is_err_and(is_attempt_lost) {
            return outcome;
        }
        // The run has ended, possibly with an error. The next run can start.
        engine.end(Vec::new())?;
        set_status(ctx, &mut engine, None);
        send_update(ctx);
        outcome
    }
}

/// Drives an attempt at a session's run. In a worker of the suite, a run may lose the effects of
/// operations.
async fn drive(
    settings: &WorkerSettings,
    attempt: Attempt,
    session: &str,
    engine: &mut RestateEngine<'_, '_>,
) -> Result<Outcome, Error> {
    #[cfg(feature = "testing")]
    if let Some(run) = settings.suite.get(session) {
        let attempt = run.attempt(engine.entries().to_vec());
        return attempt.drive(&mut run.losses.wrap(engine)).await;
    }
    let _ = (settings, session);
    attempt.drive(engine).await
}

/// Converts the result of a run to a handler's result.
fn to_message(outcome: Result<Outcome, Error>) -> HandlerResult<Json<Outcome>> {
    let sent = outcome.and_then(|outcome| message("the outcome", outcome));
    sent.map_err(to_handler_error)
}

/// Writes and returns the session's status.
fn set_status(
    ctx: &ObjectContext<'_>,
    engine: &mut RestateEngine<'_, '_>,
    run: Option<&str>,
) -> SessionStatus {
    let status = engine.set_status(run);
    if !status.pending_calls().is_empty() {
        // The stored verdicts are for calls that were pending earlier.
        ctx.clear(VERDICTS);
    }
    status.clone()
}

/// The object `Copies/{session}`, which makes a session's copies one at a time. If a delayed copy
/// could overwrite a later copy, a session that was removed could reappear.
pub(crate) struct Copies(pub(crate) WorkerSettings);

#[restate_sdk::object(
    client_visibility = "pub(crate)",
    ingress_private,
    journal_retention = "0s",
    invocation_retry_policy(
        initial_interval = "50ms",
        factor = 2.0,
        max_interval = "10s",
        max_attempts = 1_000_000
    )
)]
impl Copies {
    /// Copies the session's current state.
    #[handler]
    async fn update(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        if self.0.copy.is_some() {
            ctx.object_client::<SessionClient>(ctx.key()).copy().call().await?;
        }
        Ok(())
    }
}

/// Requests a copy of the session's state after this invocation, without waiting for the copy to be
/// made.
pub(crate) fn send_update(ctx: &ObjectContext<'_>) {
    drop(ctx.object_client::<CopiesClient>(ctx.key()).update().send());
}
