//! The page's routes.

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use turnstream::env::{Ids, SystemIds};
use turnstream::hub::{Command, NotRunning};
use turnstream::item::PendingCall;
use turnstream::tool::Verdict;
use turnstream::ui::sse::Sse;
use turnstream::{Error, ErrorKind};

use super::call::{Answer, Call, hold, json};
use super::failure::Failure;
use super::open_session::{OpenSession, Verdicts};
use super::requests::{
    EventsQuery, ForkBody, ListQuery, MessagesQuery, RevokeBody, StartBody, SteerBody, StopBody,
    VerdictBody, WaitingCalls, idempotency_key,
};
use super::response::to_axum;
use super::start::Start;
use super::starts::last_answer;
use super::views::{self, ListedSession, next_position, parse_position};

/// The maximum number of forks in a row. A longer chain would be slow to read, because each fork
/// reads the entries of its origin.
const MAX_FORKS_IN_A_ROW: u32 = 100;

/// Precedes the number of forks in a row in the id of a fork.
const FORK_MARK: &str = ".fork";

/// Starts a run, or continues an unfinished one.
pub(super) async fn start(call: Call) -> Answer {
    let body: StartBody = call.json()?;
    let waiting_calls = body.waiting_calls;
    let (text, key) = (body.into_text()?, idempotency_key(&call.parts.headers)?);
    let open = match &text {
        Some(_) => call.open().await?,
        None => call.open_existing().await?,
    };
    let started = call.server.start_once(&call.principal, &open, text, waiting_calls, key).await?;
    json(StatusCode::ACCEPTED, started)
}

/// Streams the events of a session, across all its runs.
pub(super) async fn events(call: Call) -> Answer {
    let (settings, query) = (&call.server.0, call.query::<EventsQuery>()?);
    let slot = call.take_reader()?;
    let open = call.open().await?;
    let after = query.after(&call.parts.headers);
    let reader = settings.hub.read_session(&open.session, after.as_ref());
    let reader = hold(reader, (slot, open));
    let sse = Sse::new().with_error_texts(call.server.reader_texts());
    let sse = match settings.partials.clone() {
        Some(values) => sse.with_partials(values),
        None => sse,
    };
    Ok(to_axum(sse.respond_to_reader(reader)))
}

pub(super) async fn stop(call: Call) -> Answer {
    let body: StopBody = call.json()?;
    send(&call, body.to_command()).await
}

/// Sends the model a message while it works. The event `appended` repeats the returned id.
pub(super) async fn steer(call: Call) -> Answer {
    let body: SteerBody = call.json()?;
    send(&call, Command::Steer(body.into_items()?)).await
}

async fn send(call: &Call, command: Command) -> Answer {
    let open = call.open_existing().await?;
    let run = call.active_run(&open).await?;
    let run = run.ok_or_else(|| Error::from(NotRunning { run: call.session.clone() }))?;
    let receipt = call.server.0.hub.send(&run, command).await?;
    json(StatusCode::OK, json!({ "run": run, "id": receipt.id }))
}

pub(super) async fn approve(call: Call) -> Answer {
    let body: VerdictBody = call.json()?;
    decide(&call, body.into_approval()).await
}

pub(super) async fn deny(call: Call) -> Answer {
    let body: VerdictBody = call.json()?;
    decide(&call, body.into_denial()).await
}

/// Stores a verdict and the earlier ones. Once no verdict is missing, the run continues.
async fn decide(call: &Call, verdicts: Vec<(PendingCall, Verdict)>) -> Answer {
    let open = call.open_existing().await?;
    let _starting = open.starting.lock().await;
    // The run of an interactive agent waits for its verdicts.
    if let Some(run) = call.active_run(&open).await? {
        match send_verdicts(call, &run, &verdicts).await {
            Ok(()) => return json(StatusCode::ACCEPTED, json!({ "run": run, "is_queued": false })),
            // The run has ended meanwhile, and may wait for the verdicts in the session.
            Err(error) if error.find_source::<NotRunning>().is_some() => {
                call.server.0.sessions.refresh(&open.session).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    match open.add_verdicts(verdicts)? {
        Verdicts::Complete(verdicts) => {
            let (agent, start) = (call.server.0.agent.clone(), Start::Resume(verdicts));
            let (_, started) = call.server.start(&call.principal, &open, agent, start).await?;
            open.clear_verdicts();
            json(StatusCode::ACCEPTED, started)
        }
        Verdicts::Missing(missing) => json(StatusCode::OK, json!({ "missing": missing })),
    }
}

/// Sends verdicts to an active run. The earlier ones may have been received already.
async fn send_verdicts(
    call: &Call,
    run: &str,
    verdicts: &[(PendingCall, Verdict)],
) -> Result<(), Error> {
    let Some((last, earlier)) = verdicts.split_last() else { return Ok(()) };
    let send = async |(call_id, verdict): &(PendingCall, Verdict)| {
        let command = Command::Verdict { call: call_id.clone(), verdict: verdict.clone() };
        call.server.0.hub.send(run, command).await
    };
    for verdict in earlier {
        match send(verdict).await {
            Err(error) if error.kind() != ErrorKind::Conflict => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    send(last).await.map(drop)
}

/// Lists the session's grants: the calls that run without a question.
pub(super) async fn grants(call: Call) -> Answer {
    let open = call.open().await?;
    json(StatusCode::OK, json!({ "grants": open.session.grants() }))
}

/// Revokes a grant. If a run is active, the revocation holds for all of its calls that have not
/// started.
pub(super) async fn revoke_grant(call: Call) -> Answer {
    let RevokeBody { grant_id } = call.json()?;
    let open = call.open_existing().await?;
    // No run starts after none was found.
    let _starting = open.starting.lock().await;
    if !revoke_in_run(&call, &open, &grant_id).await? {
        open.session.revoke_grant(&grant_id).await?;
    }
    json(StatusCode::OK, json!({}))
}

/// Revokes a grant in the active run. Returns `false` if no run is active.
async fn revoke_in_run(call: &Call, open: &OpenSession, grant_id: &str) -> Result<bool, Failure> {
    let Some(run) = call.active_run(open).await? else { return Ok(false) };
    let command = Command::RevokeGrant { grant_id: grant_id.to_owned() };
    match call.server.0.hub.send(&run, command).await {
        Ok(_) => Ok(true),
        // The run has ended meanwhile.
        Err(error) if error.find_source::<NotRunning>().is_some() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the id of a new fork, which ends with the number of forks in a row. Clients do not
/// choose the ids of forks, so none can hide that a session is a fork.
fn new_fork_id(origin: &str) -> Result<String, Failure> {
    let earlier = origin.rsplit_once(FORK_MARK).and_then(|(_, count)| count.parse::<u32>().ok());
    match earlier.unwrap_or_default() {
        MAX_FORKS_IN_A_ROW.. => {
            let message = format!("there are already {MAX_FORKS_IN_A_ROW} forks in a row");
            Err(Failure::conflict(message))
        }
        earlier => Ok(format!("{}{FORK_MARK}{}", SystemIds.next_id(), earlier + 1)),
    }
}

/// Creates a new session from the first entries of this one.
pub(super) async fn fork(call: Call) -> Answer {
    let ForkBody { at } = call.json()?;
    if at == Some(0) {
        // Nothing to read: the new session starts with its first message.
        return json(StatusCode::CREATED, json!({ "session": SystemIds.next_id() }));
    }
    let id = new_fork_id(&call.session)?;
    let open = call.open_existing().await?;
    let settings = &call.server.0;
    let stored = settings.sessions.stored_id(&call.principal, &id)?;
    let at = at.unwrap_or_else(|| open.session.version());
    if at > open.session.version() {
        return Err(Failure::conflict("the session has fewer entries"));
    }
    settings.sessions.add_session(&call.principal, &settings.limits).await?;
    let max_starts = settings.limits.max_starts_per_minute;
    let forked = match settings.usage.starts.add(&call.principal, max_starts) {
        Ok(()) => open.session.fork_at(at, stored).await.map(drop).map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = forked {
        settings.sessions.remove_session(&call.principal).await;
        return Err(failure);
    }
    json(StatusCode::CREATED, json!({ "session": id }))
}

#[derive(Deserialize)]
struct RegenerateBody {
    #[serde(default)]
    waiting_calls: WaitingCalls,
}

/// Requests another answer to the last message. The existing answer is tombstoned.
pub(super) async fn regenerate(call: Call) -> Answer {
    let RegenerateBody { waiting_calls } = call.json()?;
    let open = call.open_existing().await?;
    let _starting = open.starting.lock().await;
    if call.active_run(&open).await?.is_none() {
        open.check_waiting_calls(waiting_calls)?;
    }
    let Some(from) = last_answer(&open.session.entries().await?) else {
        return Err(Failure::conflict("there is no message to answer"));
    };
    let start = Start::Replace { from, items: Vec::new() };
    let agent = call.server.0.agent.clone();
    let (_, started) = call.server.start(&call.principal, &open, agent, start).await?;
    json(StatusCode::ACCEPTED, started)
}

/// Lists the sessions, the most recently written one first, 50 at a time.
pub(super) async fn list(call: Call) -> Answer {
    let settings = &call.server.0;
    let query: ListQuery = call.query()?;
    let after = query.after.as_deref().map(parse_position).transpose()?;
    let (page, titles): (Vec<_>, Vec<_>) =
        settings.sessions.list(&call.principal, after).await?.into_iter().unzip();
    let texts = call.server.reader_texts();
    let mut sessions = Vec::new();
    for (info, title) in page.iter().zip(titles) {
        let stored = settings.sessions.stored_id(&call.principal, &info.id);
        let is_running = match stored {
            Ok(stored) => matches!(settings.hub.find_run(&stored).await, Ok(Some(_))),
            Err(_) => false,
        };
        sessions.push(ListedSession::new(info, title, is_running, &texts));
    }
    json(StatusCode::OK, json!({ "sessions": sessions, "next": next_position(&page) }))
}

/// Returns at most 200 entries before a number, without provider data, and how their runs ended.
pub(super) async fn messages(call: Call) -> Answer {
    let query: MessagesQuery = call.query()?;
    let open = call.open().await?;
    let entries = open.session.entries().await?;
    let observed = open.runs().to_ended_runs();
    let texts = &call.server.reader_texts();
    json(StatusCode::OK, views::messages(&entries, &query, &open.session, &observed, texts))
}

/// The traces of the session's last runs in this process.
pub(super) async fn trace(call: Call) -> Answer {
    let open = call.open().await?;
    let traces = open.runs().to_traces();
    json(StatusCode::OK, traces)
}

/// Reports that the server is healthy, and its load if it is shown.
pub(super) fn health(call: &Call) -> Answer {
    if !call.server.shows_load() {
        return json(StatusCode::OK, json!({ "status": "ok" }));
    }
    let stats = call.server.0.hub.stats();
    let oldest = stats.oldest_reader.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    json(
        StatusCode::OK,
        json!({
            "status": "ok",
            "runs": stats.runs,
            "readers": stats.readers,
            "cut_readers": stats.cut_readers,
            "fullest_log": stats.fullest_log,
            "log_capacity": stats.capacity,
            "oldest_reader_ms": oldest,
        }),
    )
}
