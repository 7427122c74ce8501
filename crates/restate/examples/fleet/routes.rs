//! The routes of the page, implemented with a [`Client`](turnstream_restate::Client).

use std::sync::{Arc, PoisonError};

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::Event;
use turnstream::env::{Ids, SystemIds};
use turnstream::hub::{Command, HubEvent};
use turnstream::item::{Grant, PendingCall};
use turnstream::session::{MemoryStore, Session, SessionInfo, Store};
use turnstream::tool::Verdict;
use turnstream::ui::sse::Sse;
use turnstream::ui::{ClientLimits, ErrorTexts};
use turnstream_server::static_files;

use crate::app::App;
use crate::failure::Failure;
use crate::requests::{
    EventsQuery, ForkBody, ListQuery, MessagesQuery, RevokeBody, StartBody, SteerBody, StopBody,
    VerdictBody, WaitingCalls, check_session_id, idempotency_key,
};
use crate::response::to_axum;
use crate::views::{self, KnownTitle, LIST_PAGE, ListedSession, next_position, parse_position};
use crate::{AGENT, access, page_files, store_events};

/// The parsed body of a request, or the reason why it cannot be parsed.
type Body<T> = Result<Json<T>, JsonRejection>;

type Answer<T> = Result<T, Failure>;

pub(crate) fn router(app: Arc<App>) -> Router {
    let session = Router::new()
        .route("/runs", post(start))
        .route("/events", get(events))
        .route("/stop", post(stop))
        .route("/steer", post(steer))
        .route("/approve", post(approve))
        .route("/deny", post(deny))
        .route("/grants", get(grants))
        .route("/grants/revoke", post(revoke_grant))
        .route("/fork", post(fork))
        .route("/messages", get(messages));
    Router::new()
        .merge(static_files(&page_files::FILES))
        .route("/login", get(access::login))
        .route("/health", get(async || Json(json!({ "status": "ok" }))))
        .route("/about", get(about))
        .route("/sessions", get(list))
        .nest("/sessions/{id}", session)
        .fallback(async || Failure::not_found("there is no such page"))
        .layer(DefaultBodyLimit::max(ClientLimits::default().max_bytes))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), access::guard))
        .with_state(app)
}

/// Starts a run, or continues an unfinished one. Restate queues it while another run is active.
async fn start(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body<StartBody>,
) -> Answer<(StatusCode, Json<Value>)> {
    check_session_id(&id)?;
    let Json(body) = body?;
    let waiting_calls = body.waiting_calls;
    let (text, key) = (body.into_text()?, idempotency_key(&headers)?);
    let key = key.unwrap_or_else(|| SystemIds.next_id());
    let status = app.client.status(&id).await?;
    let (is_queued, pending) = (status.run.is_some(), status.pending_calls().len());
    if text.is_some() && !is_queued && pending > 0 && waiting_calls == WaitingCalls::Keep {
        return Err(Failure::calls_wait(pending));
    }
    let run = match text {
        Some(text) => app.client.start(&id, AGENT, text, &key).await?,
        None => app.client.resume(&id, AGENT, [], &key).await?,
    };
    app.copy.follow(&id);
    Ok((StatusCode::ACCEPTED, Json(json!({ "run": run, "is_queued": is_queued }))))
}

/// Streams the events of a session, across all its runs, whichever worker performs them.
async fn events(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    check_session_id(&id)?;
    let Some(hub) = &app.hub else { return Ok(store_events::respond(app.client.clone(), id)) };
    let session = Session::open(app.client.clone(), &*id).await?;
    let reader = hub.read_session(&session, query.after(&headers).as_ref());
    let reader = reader.map(|event| event.map(without_undelivered));
    Ok(to_axum(Sse::new().with_error_texts(ErrorTexts::shown()).respond_to_reader(reader)))
}

/// Removes undelivered input from an event: Restate queues it for the next run, so the page must
/// not restore it.
fn without_undelivered(event: HubEvent) -> HubEvent {
    match event {
        HubEvent::Event { number, event } => match &*event {
            Event::Finished(outcome) if !outcome.undelivered.is_empty() => {
                let mut outcome = outcome.clone();
                outcome.undelivered.clear();
                HubEvent::Event { number, event: Arc::new(Event::Finished(outcome)) }
            }
            _ => HubEvent::Event { number, event },
        },
        event => event,
    }
}

async fn stop(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<StopBody>,
) -> Answer<Json<Value>> {
    check_session_id(&id)?;
    let Json(body) = body?;
    send(&app, &id, body.to_command()).await
}

/// Sends the model a message while it works. The event `appended` repeats the returned id.
async fn steer(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<SteerBody>,
) -> Answer<Json<Value>> {
    check_session_id(&id)?;
    let Json(body) = body?;
    // Without an active run, the message would be queued for the next one; the page starts a run
    // instead.
    if app.client.queued(&id).await?.run().is_none() {
        return Err(Failure::conflict("not running: the run has ended"));
    }
    send(&app, &id, Command::Steer(body.into_items()?)).await
}

async fn send(app: &App, id: &str, command: Command) -> Answer<Json<Value>> {
    let receipt = app.client.send(id, &SystemIds.next_id(), command).await?;
    app.copy.follow(id);
    Ok(Json(json!({ "id": receipt.id })))
}

async fn approve(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<VerdictBody>,
) -> Answer<Response> {
    let Json(body) = body?;
    judge(&app, &id, body.into_approval()).await
}

async fn deny(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<VerdictBody>,
) -> Answer<Response> {
    let Json(body) = body?;
    judge(&app, &id, body.into_denial()).await
}

/// Stores verdicts in Restate. Once no verdict is missing, a run continues.
async fn judge(app: &App, id: &str, verdicts: Vec<(PendingCall, Verdict)>) -> Answer<Response> {
    check_session_id(id)?;
    let pending = app.client.status(id).await?.pending_calls().len();
    let missing = pending.saturating_sub(verdicts.len());
    app.copy.follow(id);
    for (call, verdict) in verdicts {
        if app.client.judge(id, AGENT, call, verdict).await?.is_some() {
            return Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response());
        }
    }
    Ok(Json(json!({ "missing": missing })).into_response())
}

/// Lists the session's grants: the calls that run without a question.
async fn grants(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answer<Json<Value>> {
    check_session_id(&id)?;
    Ok(Json(json!({ "grants": valid_grants(&app, &id).await? })))
}

/// Revokes a grant, in the active run or else in the next one.
async fn revoke_grant(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<RevokeBody>,
) -> Answer<Json<Value>> {
    check_session_id(&id)?;
    let Json(RevokeBody { grant_id }) = body?;
    if valid_grants(&app, &id).await?.iter().all(|grant| grant.id != grant_id) {
        return Err(Failure::conflict("there is no grant with this id"));
    }
    send(&app, &id, Command::RevokeGrant { grant_id }).await
}

/// The grants of the session, without those whose revocation waits for a run.
async fn valid_grants(app: &App, id: &str) -> Answer<Vec<Grant>> {
    let mut grants = Session::open(app.client.clone(), id).await?.grants();
    for sent in app.client.queued(id).await?.commands() {
        if let Command::RevokeGrant { grant_id } = &sent.command {
            grants.retain(|grant| grant.id != *grant_id);
        }
    }
    Ok(grants)
}

/// Creates a new session from the first entries of this one.
async fn fork(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<ForkBody>,
) -> Answer<(StatusCode, Json<Value>)> {
    check_session_id(&id)?;
    let Json(ForkBody { at }) = body?;
    let entries = app.client.history(&id, 0).await?;
    let fork = SystemIds.next_id();
    if !entries.is_empty() {
        // `fork_at` settles the calls that the session may have started.
        let at = at.map_or(entries.len() as u64, |at| at.min(entries.len() as u64));
        let store = MemoryStore::new();
        store.append(&id, 0, entries).await?;
        let forked = Session::open(store, &*id).await?.fork_at(at, &*fork).await?;
        app.client.import(&fork, forked.entries().await?).await?;
        app.copy.follow(&fork);
    }
    Ok((StatusCode::CREATED, Json(json!({ "session": fork }))))
}

/// Lists the sessions of the copy, the most recently written one first.
async fn list(State(app): State<Arc<App>>, Query(query): Query<ListQuery>) -> Answer<Json<Value>> {
    let after = query.after.as_deref().map(parse_position).transpose()?;
    app.copy.copy_all().await;
    let page = app.copy.store().list_page(after.as_ref(), LIST_PAGE).await?;
    let mut sessions = Vec::new();
    for info in &page {
        let is_running = match &app.hub {
            Some(hub) => matches!(hub.find_run(&info.id).await, Ok(Some(_))),
            None => app.client.status(&info.id).await.is_ok_and(|status| status.run.is_some()),
        };
        sessions.push(ListedSession::new(
            info,
            title(&app, info).await,
            is_running,
            &ErrorTexts::shown(),
        ));
    }
    Ok(Json(json!({ "sessions": sessions, "next": next_position(&page) })))
}

/// The beginning of the user's first message.
async fn title(app: &App, info: &SessionInfo) -> String {
    let titles = || app.titles.lock().unwrap_or_else(PoisonError::into_inner);
    let known = titles().get(&info.id).cloned();
    let found = KnownTitle::load(app.copy.store(), info, known).await;
    let Some(found) = found else { return String::new() };
    let text = found.text.clone();
    titles().insert(info.id.clone(), found);
    text
}

async fn messages(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(query): Query<MessagesQuery>,
) -> Answer<Json<Value>> {
    check_session_id(&id)?;
    let session = Session::open(app.client.clone(), &*id).await?;
    Ok(Json(views::messages(
        &session.entries().await?,
        &query,
        &session,
        &[],
        &ErrorTexts::shown(),
    )))
}

/// The model's description for the page.
async fn about(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "model": app.about, "price": null }))
}
