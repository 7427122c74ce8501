//! Sessions, each an object that runs one run at a time.

use restate_sdk::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use turnstream::durable::{Attempt, SessionSegments, StoredCommand, is_attempt_lost};
use turnstream::hub::Command;
use turnstream::item::PendingCall;
use turnstream::session::{Entry, MemoryStore, Session as OpenSession, SessionState, Store};
use turnstream::tool::Verdict;
use turnstream::{Error, ErrorKind, Item, Outcome};

use crate::context::ReadState;
use crate::engine::{RestateEngine, read_session};
use crate::errors::{to_handler_error, to_terminal, unreadable};
use crate::worker::WorkerParts;

/// The object `Session/{session}`.
pub(crate) struct Session(pub(crate) WorkerParts);

/// What a session is asked to run.
#[derive(Serialize, Deserialize)]
pub(crate) struct RunRequest {
    /// The name of the agent.
    pub(crate) agent: String,
    pub(crate) input: Vec<Item>,
}

/// What a session is asked to resume.
#[derive(Serialize, Deserialize)]
pub(crate) struct ResumeRequest {
    pub(crate) agent: String,
    /// Commands that are verdicts.
    pub(crate) verdicts: Vec<StoredCommand>,
}

/// A verdict on a pending call.
#[derive(Serialize, Deserialize)]
pub(crate) struct JudgeRequest {
    pub(crate) agent: String,
    /// A command that is a verdict.
    pub(crate) verdict: StoredCommand,
}

/// What a session is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SessionStatus {
    /// How many entries it has.
    pub version: u64,
    /// What it waits for.
    pub kind: StatusKind,
    /// The active run, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// What a session waits for, as its last run has left it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum StatusKind {
    /// Nothing.
    #[default]
    Idle,
    /// Verdicts on these calls.
    Pending {
        /// The calls, with the exact arguments that would run, those that have a verdict already included.
        calls: Vec<PendingCall>,
    },
    /// A run was broken off.
    Unfinished,
}

const STATUS: &str = "status";
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
    /// Runs an agent on something said.
    #[handler]
    async fn run(
        &self,
        ctx: ObjectContext<'_>,
        Json(RunRequest { agent, input }): Json<RunRequest>,
    ) -> HandlerResult<Json<Outcome>> {
        let outcome = self.drive(&ctx, agent, Start::Input(input)).await;
        outcome.map(Json).map_err(to_handler_error)
    }

    /// Continues with calls that were pending, or with a run that was broken off.
    #[handler]
    async fn resume(
        &self,
        ctx: ObjectContext<'_>,
        Json(ResumeRequest { agent, verdicts }): Json<ResumeRequest>,
    ) -> HandlerResult<Json<Outcome>> {
        let outcome = self.drive(&ctx, agent, Start::Verdicts(verdicts)).await;
        if outcome.as_ref().is_err_and(|error| !is_attempt_lost(error)) {
            // They were not used, and can be given again.
            ctx.clear(VERDICTS);
        }
        outcome.map(Json).map_err(to_handler_error)
    }

    /// Takes a verdict on a pending call. When all have one, a run resumes them: `true`.
    #[handler]
    async fn judge(
        &self,
        ctx: ObjectContext<'_>,
        Json(JudgeRequest { agent, verdict: judged }): Json<JudgeRequest>,
    ) -> HandlerResult<Json<bool>> {
        // Before anything is noted: the run that resumes needs it.
        self.0.agent(&agent).map_err(|error| to_terminal(&error))?;
        let status = status(&ctx).await.map_err(to_handler_error)?;
        let known = state(&ctx, VERDICTS).await.map_err(to_handler_error)?;
        let mut verdicts: Vec<StoredCommand> = known.unwrap_or_default();
        let calls = match status.kind {
            StatusKind::Pending { calls } if status.run.is_none() => calls,
            StatusKind::Pending { .. } | StatusKind::Idle | StatusKind::Unfinished => Vec::new(),
        };
        let refuse = |kind, why: &str| Err(to_terminal(&Error::new(kind, why)).into());
        let Some((call, verdict)) = judged_call(&judged).filter(|(call, _)| calls.contains(call))
        else {
            // A client that has not received the answer sends the last verdict again.
            return match verdicts.contains(&judged) {
                true => Ok(Json(true)),
                false => refuse(ErrorKind::InvalidRequest, "no such call is pending"),
            };
        };
        let is_judged = |verdicts: &[StoredCommand], call| {
            verdicts.iter().filter_map(judged_call).any(|(judged, _)| judged == call)
        };
        let are_judged =
            |verdicts: &[StoredCommand]| calls.iter().all(|call| is_judged(verdicts, call));
        let known = verdicts.iter().filter_map(judged_call).find(|(known, _)| *known == call);
        match known {
            Some((_, known)) if known != verdict => {
                return refuse(ErrorKind::Conflict, "the call has another verdict already");
            }
            // If it was the last one, a run has been sent.
            Some(_) => return Ok(Json(are_judged(&verdicts))),
            None => verdicts.push(judged.clone()),
        }
        ctx.set(VERDICTS, Json(verdicts.clone()));
        let is_complete = are_judged(&verdicts);
        if is_complete {
            let session = ctx.object_client::<SessionClient>(ctx.key());
            let resume = session.resume(Json(ResumeRequest { agent, verdicts }));
            drop(resume.idempotency_key(ctx.invocation_id()).send());
        }
        Ok(Json(is_complete))
    }

    /// The entries from a number on.
    #[handler(
        // Of one moment: a run may write meanwhile.
        lazy_state = false,
        journal_retention = "0s",
        invocation_retry_policy(max_attempts = 8, on_max_attempts = "kill")
    )]
    async fn history(
        &self,
        ctx: SharedObjectContext<'_>,
        Json(from): Json<u64>,
    ) -> HandlerResult<Json<Vec<Entry>>> {
        let (_, mut entries) = read_session(&ctx).await.map_err(to_handler_error)?;
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(entries.len());
        Ok(Json(entries.split_off(from)))
    }

    /// What the session is doing.
    #[handler(
        // Of one moment: a run may write meanwhile.
        lazy_state = false,
        journal_retention = "0s",
        invocation_retry_policy(max_attempts = 8, on_max_attempts = "kill")
    )]
    async fn status(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<Json<SessionStatus>> {
        status(&ctx).await.map(Json).map_err(to_handler_error)
    }

    /// Fills an empty session with entries from elsewhere.
    #[handler]
    async fn import(
        &self,
        ctx: ObjectContext<'_>,
        Json(entries): Json<Vec<Entry>>,
    ) -> HandlerResult<()> {
        let mut engine =
            RestateEngine::open(&ctx, String::new()).await.map_err(to_handler_error)?;
        if !engine.entries().is_empty() {
            let error = Error::new(ErrorKind::Conflict, "the session has entries already");
            return Err(to_terminal(&error).into());
        }
        let imported = engine.import(entries);
        imported.map_err(|error| to_terminal(&error))?;
        set_status(&ctx, &engine, None).await.map_err(to_handler_error)?;
        Ok(())
    }

    /// Removes the session.
    #[handler]
    #[expect(clippy::unused_async, reason = "a handler is an async function")]
    async fn delete(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        ctx.clear_all();
        Ok(())
    }
}

/// How a run begins.
enum Start {
    Input(Vec<Item>),
    Verdicts(Vec<StoredCommand>),
}

/// The call and the verdict of a command that is one.
fn judged_call(stored: &StoredCommand) -> Option<(&PendingCall, &Verdict)> {
    match &stored.command {
        Command::Verdict { call, verdict } => Some((call, verdict)),
        _ => None,
    }
}

impl Session {
    async fn drive(
        &self,
        ctx: &ObjectContext<'_>,
        name: String,
        start: Start,
    ) -> Result<Outcome, Error> {
        let parts = &self.0;
        let agent = parts.agent(&name)?;
        let mut engine = RestateEngine::open(ctx, name).await?;
        set_status(ctx, &engine, Some(ctx.invocation_id())).await?;
        let attempt = match start {
            Start::Input(input) => {
                Attempt::run(&agent, ctx.key(), engine.entries().to_vec(), input)
            }
            Start::Verdicts(verdicts) => {
                let judged = |stored: &StoredCommand| {
                    judged_call(stored).map(|(call, verdict)| (call.clone(), verdict.clone()))
                };
                let verdicts: Vec<_> = verdicts.iter().filter_map(judged).collect();
                Attempt::resume(&agent, ctx.key(), engine.entries().to_vec(), verdicts)
            }
        };
        let outcome = match parts.prepare(attempt, ctx.key(), ctx.invocation_id()) {
            Ok(attempt) => parts.drive(attempt, ctx.key(), &mut engine).await,
            Err(error) => Err(error),
        };
        if outcome.as_ref().is_err_and(is_attempt_lost) {
            return outcome;
        }
        // However the run has ended, the next one can begin.
        engine.end(Vec::new())?;
        set_status(ctx, &engine, None).await?;
        outcome
    }
}

/// Notes what the session is doing. Dropping the future notes nothing.
async fn set_status(
    ctx: &ObjectContext<'_>,
    engine: &RestateEngine<'_, '_>,
    run: Option<&str>,
) -> Result<(), Error> {
    let store = MemoryStore::new();
    let entries = engine.entries().to_vec();
    let version = store.append(ctx.key(), 0, entries).await?;
    let kind = match OpenSession::open(store, ctx.key()).await?.state() {
        SessionState::Idle => StatusKind::Idle,
        SessionState::Pending { calls } => StatusKind::Pending { calls },
        SessionState::Unfinished { .. } => StatusKind::Unfinished,
    };
    if run.is_none() && matches!(kind, StatusKind::Pending { .. }) {
        // Those that are there are on calls that were pending before.
        ctx.clear(VERDICTS);
    }
    ctx.set(STATUS, Json(SessionStatus { version, kind, run: run.map(str::to_owned) }));
    Ok(())
}

/// Reads what the session is doing.
async fn status(ctx: &impl ReadState) -> Result<SessionStatus, Error> {
    let mut status: SessionStatus = state(ctx, STATUS).await?.unwrap_or_default();
    if status.run.is_some() {
        // The run has added to it.
        let head = ctx.read(SessionSegments::head_key()).await?;
        status.version = SessionSegments::open(head.as_deref())?.version();
    }
    Ok(status)
}

async fn state<T: DeserializeOwned>(ctx: &impl ReadState, key: &str) -> Result<Option<T>, Error> {
    let Some(json) = ctx.read(key).await? else { return Ok(None) };
    serde_json::from_str(&json).map(Some).map_err(|error| unreadable(key, error))
}
