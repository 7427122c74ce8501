//! The page's routes.

use std::sync::{Arc, PoisonError};

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::Error;
use turnstream::env::{Ids, SystemIds};
use turnstream::hub::{Command, NotRunning};
use turnstream::item::PendingCall;
use turnstream::session::SessionInfo;
use turnstream::tool::Verdict;
use turnstream::ui::ErrorTexts;
use turnstream::ui::sse::Sse;

use crate::app::App;
use crate::failure::Failure;
use crate::requests::{
    Body, EventsQuery, ForkBody, ListQuery, MessagesQuery, RevokeBody, StartBody, SteerBody,
    StopBody, VerdictBody, idempotency_key,
};
use crate::response::to_axum;
use crate::starts::{OpenSession, Start, Started, last_answer};
use crate::traces::RunTrace;
use crate::views::{self, LIST_PAGE, ListedSession, next_position, now_ms, parse_position};

type Answer<T> = Result<T, Failure>;

/// Starts a run, or continues an unfinished one.
pub(crate) async fn start(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body<StartBody>,
) -> Answer<(StatusCode, Json<Started>)> {
    let Json(body) = body?;
    let waiting_calls = body.waiting_calls;
    let (text, key) = (body.into_text()?, idempotency_key(&headers)?);
    let open = app.session(&id).await?;
    let started = app.start_once(&open, text, waiting_calls, key).await?;
    Ok((StatusCode::ACCEPTED, Json(started)))
}

/// Streams the events of a session, across all its runs.
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let Ok(permit) = Arc::clone(&app.readers).try_acquire_owned() else {
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open"));
    };
    let open = app.session(&id).await?;
    let reader = app.hub.read_session(&open.session, query.after(&headers).as_ref());
    // The permit is released when the reader is dropped.
    let reader = reader.inspect(move |_| {
        let _held = &permit;
    });
    Ok(to_axum(Sse::new().with_error_texts(ErrorTexts::shown()).respond_to_reader(reader)))
}

pub(crate) async fn stop(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<StopBody>,
) -> Answer<Json<Value>> {
    let Json(body) = body?;
    send(&app, &id, body.to_command()).await
}

/// Sends the model a message while it works. The event `appended` repeats the returned id.
pub(crate) async fn steer(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<SteerBody>,
) -> Answer<Json<Value>> {
    let Json(body) = body?;
    send(&app, &id, Command::Steer(body.into_items()?)).await
}

async fn send(app: &App, id: &str, command: Command) -> Answer<Json<Value>> {
    let run = app.hub.find_run(id).await?;
    let run = run.ok_or_else(|| Error::from(NotRunning { run: id.to_owned() }))?;
    let receipt = app.hub.send(&run, command).await?;
    Ok(Json(json!({ "run": run, "id": receipt.id })))
}

pub(crate) async fn approve(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<VerdictBody>,
) -> Answer<Response> {
    let Json(body) = body?;
    decide(&app, &id, body.into_approval()).await
}

pub(crate) async fn deny(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<VerdictBody>,
) -> Answer<Response> {
    let Json(body) = body?;
    decide(&app, &id, body.into_denial()).await
}

/// Stores a verdict and the earlier ones. Once no verdict is missing, the run continues.
async fn decide(app: &App, id: &str, verdicts: Vec<(PendingCall, Verdict)>) -> Answer<Response> {
    let open = app.session(id).await?;
    let _starting = open.starting.lock().await;
    match open.add_verdicts(verdicts)? {
        Ok(verdicts) => {
            let (_, started) = app.start(&open, &app.agent, Start::Resume(verdicts)).await?;
            open.clear_verdicts();
            Ok((StatusCode::ACCEPTED, Json(started)).into_response())
        }
        Err(missing) => Ok(Json(json!({ "missing": missing })).into_response()),
    }
}

/// Lists the session's grants: the calls that run without a question.
pub(crate) async fn grants(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Answer<Json<Value>> {
    let open = app.session(&id).await?;
    Ok(Json(json!({ "grants": open.session.grants() })))
}

/// Revokes a grant. If a run is active, the revocation holds for all of its calls that have not
/// started.
pub(crate) async fn revoke_grant(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<RevokeBody>,
) -> Answer<Json<Value>> {
    let Json(RevokeBody { grant_id }) = body?;
    let open = app.session(&id).await?;
    // No run starts after none was found.
    let _starting = open.starting.lock().await;
    let is_revoked = match app.hub.find_run(&id).await? {
        Some(run) => {
            let command = Command::RevokeGrant { grant_id: grant_id.clone() };
            match app.hub.send(&run, command).await {
                // The run has ended meanwhile.
                Err(error) if error.find_source::<NotRunning>().is_some() => false,
                sent => sent.map(|_| true)?,
            }
        }
        None => false,
    };
    if !is_revoked {
        open.session.revoke_grant(&grant_id).await?;
    }
    Ok(Json(json!({})))
}

/// Creates a new session from the first entries of this one.
pub(crate) async fn fork(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<ForkBody>,
) -> Answer<(StatusCode, Json<Value>)> {
    let Json(ForkBody { at }) = body?;
    let open = app.session(&id).await?;
    if at == Some(0) || open.session.version() == 0 {
        // Nothing to copy: the new session starts with its first message.
        return Ok((StatusCode::CREATED, Json(json!({ "session": SystemIds.next_id() }))));
    }
    app.check_session_count(&open.session).await?;
    let at = at.unwrap_or_else(|| open.session.version());
    let fork = open.session.fork_at(at, SystemIds.next_id()).await?;
    Ok((StatusCode::CREATED, Json(json!({ "session": fork.id() }))))
}

/// Requests another answer to the last message. The existing answer is tombstoned.
pub(crate) async fn regenerate(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<Value>,
) -> Answer<(StatusCode, Json<Started>)> {
    let Json(_) = body?;
    let open = app.session(&id).await?;
    let _starting = open.starting.lock().await;
    let Some(from) = last_answer(&open.session.entries().await?) else {
        return Err(Failure::conflict("there is no message to answer"));
    };
    let start = Start::Replace { from, items: Vec::new() };
    let (_, started) = app.start(&open, &app.agent, start).await?;
    Ok((StatusCode::ACCEPTED, Json(started)))
}

/// Lists the sessions, the most recently written one first, 50 at a time.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Value>> {
    let after = query.after.as_deref().map(parse_position).transpose()?;
    let page = app.store.list_page(after.as_ref(), LIST_PAGE).await?;
    let mut sessions = Vec::new();
    for info in &page {
        let is_running = matches!(app.hub.find_run(&info.id).await, Ok(Some(_)));
        sessions.push(ListedSession::new(info, title(&app, info).await, is_running));
    }
    Ok(Json(json!({ "sessions": sessions, "next": next_position(&page) })))
}

/// The beginning of the user's first message, which does not change.
async fn title(app: &App, info: &SessionInfo) -> String {
    let titles = || app.titles.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(title) = titles().get(&info.id) {
        return title.clone();
    }
    let entries = app.store.load(&info.id, 0).await.ok().flatten();
    let Some(title) = views::title(&entries.unwrap_or_default()) else { return String::new() };
    let mut titles = titles();
    if titles.len() >= 10_000 {
        titles.clear();
    }
    titles.insert(info.id.clone(), title.clone());
    title
}

/// Returns at most 200 entries before a number, without provider data, and how their runs ended.
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(query): Query<MessagesQuery>,
) -> Answer<Json<Value>> {
    let open = app.session(&id).await?;
    let entries = open.session.entries().await?;
    let observed = open.runs().to_ended_runs();
    Ok(Json(views::messages(&entries, &query, &open.session, &observed)))
}

/// The traces of the session's last runs in this process.
pub(crate) async fn trace(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Answer<Json<Vec<RunTrace>>> {
    let open: Arc<OpenSession> = app.session(&id).await?;
    let traces = open.runs().to_traces();
    Ok(Json(traces))
}

/// The model's description for the page.
pub(crate) async fn about(State(app): State<Arc<App>>) -> Json<Value> {
    let price =
        app.about.price.map(|price| json!({ "input": price.input, "output": price.output }));
    Json(json!({
        "model": app.about,
        "price": price,
        "can_regenerate": true,
        "has_traces": true,
        "now": now_ms(),
    }))
}

/// Reports whether the server is healthy, and its load.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Json<Value> {
    let stats = app.hub.stats();
    Json(json!({
        "status": "ok",
        "runs": stats.runs,
        "readers": stats.readers,
        "cut_readers": stats.cut_readers,
        "fullest_log": stats.fullest_log,
        "log_capacity": stats.capacity,
        "oldest_reader_ms": stats.oldest_reader.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
    }))
}
