//! The routes of the page.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use turnstream::env::{Ids, SystemIds};
use turnstream::hub::{Command, EventNumber, NotRunning};
use turnstream::item::{ItemKind, PendingCall};
use turnstream::session::{Entry, Session, SessionInfo, SessionState};
use turnstream::tool::Verdict;
use turnstream::ui::ErrorTexts;
use turnstream::ui::sse::Sse;
use turnstream::{Error, Item};

use crate::app::App;
use crate::failure::Failure;
use crate::page::to_axum;
use crate::starts::{OpenSession, Start, Started, last_answer};
use crate::traces::RunTrace;

/// So many entries are given at once.
const MAX_PAGE: usize = 200;

/// So many sessions are listed at once.
const LIST_PAGE: usize = 50;

/// The characters of a title.
const MAX_TITLE: usize = 80;

type Answer<T> = Result<T, Failure>;
type Body<T> = Result<Json<T>, JsonRejection>;

#[derive(Deserialize)]
pub(crate) struct StartBody {
    /// Without it, the run continues what was left.
    text: Option<String>,
}

/// Begins a run, or continues what the last one has left.
pub(crate) async fn start(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body<StartBody>,
) -> Answer<(StatusCode, Json<Started>)> {
    let Json(StartBody { text }) = body?;
    if text.as_ref().is_some_and(|text| text.trim().is_empty()) {
        return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "the message is empty"));
    }
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 200) {
        let message = "an `idempotency-key` has 1 to 200 characters";
        return Err(Failure::new(StatusCode::BAD_REQUEST, message));
    }
    let open = app.session(&id).await?;
    let started = app.start_once(&open, text, key).await?;
    Ok((StatusCode::ACCEPTED, Json(started)))
}

#[derive(Deserialize)]
pub(crate) struct EventsQuery {
    /// The number of the last event that the page has.
    after: Option<String>,
}

/// The events of a session, over all its runs.
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
    let last = headers.get("last-event-id").and_then(|last| last.to_str().ok());
    // A number that cannot be read is one that is gone.
    let after: Option<EventNumber> =
        last.or(query.after.as_deref()).and_then(|last| last.parse().ok());
    let reader = app.hub.read_session(&open.session, after.as_ref());
    // The permit goes with the reader.
    let reader = reader.inspect(move |_| {
        let _held = &permit;
    });
    Ok(to_axum(Sse::new().with_error_texts(ErrorTexts::shown()).respond_to_reader(reader)))
}

#[derive(Deserialize)]
pub(crate) struct StopBody {
    /// Lets the turn that streams end, with its tools.
    #[serde(default)]
    after_turn: bool,
}

pub(crate) async fn stop(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<StopBody>,
) -> Answer<Json<Value>> {
    let Json(StopBody { after_turn }) = body?;
    let command = if after_turn { Command::StopAfterTurn } else { Command::Interrupt };
    send(&app, &id, command).await
}

#[derive(Deserialize)]
pub(crate) struct SteerBody {
    text: String,
}

/// Tells the model something while it works. The id comes back with the event `appended`.
pub(crate) async fn steer(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<SteerBody>,
) -> Answer<Json<Value>> {
    let Json(SteerBody { text }) = body?;
    if text.trim().is_empty() {
        return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "the message is empty"));
    }
    send(&app, &id, Command::Steer(vec![Item::user(text)])).await
}

async fn send(app: &App, id: &str, command: Command) -> Answer<Json<Value>> {
    let run = app.hub.find_run(id).await?;
    let run = run.ok_or_else(|| Error::from(NotRunning { run: id.to_owned() }))?;
    let receipt = app.hub.send(&run, command).await?;
    Ok(Json(json!({ "run": run, "id": receipt.id })))
}

#[derive(Deserialize)]
pub(crate) struct VerdictBody {
    /// The call as it was shown.
    call: PendingCall,
    reason: Option<String>,
    /// The verdicts on other calls that the page has given before: another process may have got them.
    #[serde(default)]
    earlier: Vec<EarlierVerdict>,
}

#[derive(Deserialize)]
struct EarlierVerdict {
    call: PendingCall,
    is_approved: bool,
    reason: Option<String>,
}

pub(crate) async fn approve(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<VerdictBody>,
) -> Answer<Response> {
    let Json(VerdictBody { call, earlier, .. }) = body?;
    decide(&app, &id, earlier, (call, Verdict::Approve)).await
}

pub(crate) async fn deny(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<VerdictBody>,
) -> Answer<Response> {
    let Json(VerdictBody { call, reason, earlier }) = body?;
    decide(&app, &id, earlier, (call, denial(reason))).await
}

fn denial(reason: Option<String>) -> Verdict {
    let reason = reason.filter(|reason| !reason.trim().is_empty());
    Verdict::deny(reason.unwrap_or_else(|| "the user has denied it".to_owned()))
}

/// Keeps a verdict, and those that were given before. With the last one the run continues.
async fn decide(
    app: &App,
    id: &str,
    earlier: Vec<EarlierVerdict>,
    verdict: (PendingCall, Verdict),
) -> Answer<Response> {
    let open = app.session(id).await?;
    let _starting = open.starting.lock().await;
    let earlier = earlier.into_iter().map(|EarlierVerdict { call, is_approved, reason }| {
        (call, if is_approved { Verdict::Approve } else { denial(reason) })
    });
    match open.add_verdicts(earlier.chain([verdict]))? {
        Ok(verdicts) => {
            let (_, started) = app.start(&open, &app.agent, Start::Resume(verdicts)).await?;
            open.clear_verdicts();
            Ok((StatusCode::ACCEPTED, Json(started)).into_response())
        }
        Err(missing) => Ok(Json(json!({ "missing": missing })).into_response()),
    }
}

#[derive(Deserialize)]
pub(crate) struct ForkBody {
    /// So many entries are taken over; all of them unless it is given.
    at: Option<u64>,
}

/// Makes another session of the first entries of this one.
pub(crate) async fn fork(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<ForkBody>,
) -> Answer<(StatusCode, Json<Value>)> {
    let Json(ForkBody { at }) = body?;
    let open = app.session(&id).await?;
    if at == Some(0) || open.session.version() == 0 {
        // Nothing is taken over: it begins with its first message.
        return Ok((StatusCode::CREATED, Json(json!({ "session": SystemIds.next_id() }))));
    }
    app.check_session_count(&open.session).await?;
    let at = at.unwrap_or_else(|| open.session.version());
    let fork = open.session.fork_at(at, SystemIds.next_id()).await?;
    Ok((StatusCode::CREATED, Json(json!({ "session": fork.id() }))))
}

/// Asks for another answer to the last message. The one that is there becomes void.
pub(crate) async fn regenerate(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Body<Value>,
) -> Answer<(StatusCode, Json<Started>)> {
    let Json(_) = body?;
    let open = app.session(&id).await?;
    let _starting = open.starting.lock().await;
    let Some(from) = last_answer(&open.session.entries().await?) else {
        return Err(Failure::conflict("nothing was asked yet"));
    };
    let start = Start::Replace { from, items: Vec::new() };
    let (_, started) = app.start(&open, &app.agent, start).await?;
    Ok((StatusCode::ACCEPTED, Json(started)))
}

#[derive(Deserialize)]
pub(crate) struct ListQuery {
    /// The text `next` of the page before.
    after: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    id: String,
    title: String,
    /// In milliseconds since 1970.
    updated_at: u64,
    entries: u64,
    forked_from: Option<String>,
    is_running: bool,
}

/// The sessions, the one that was written last first, 50 at a time.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Value>> {
    let after = query.after.as_deref().map(parse_place).transpose()?;
    let page = app.store.list_page(after.as_ref(), LIST_PAGE).await?;
    let next = page.last().filter(|_| page.len() == LIST_PAGE).map(place_of);
    let mut sessions = Vec::new();
    for info in &page {
        let since = info.updated_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        sessions.push(Listed {
            title: title(&app, info).await,
            updated_at: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            entries: info.version,
            forked_from: info.origin.as_ref().map(|origin| origin.id.clone()),
            is_running: matches!(app.hub.find_run(&info.id).await, Ok(Some(_))),
            id: info.id.clone(),
        });
    }
    Ok(Json(json!({ "sessions": sessions, "next": next })))
}

/// The place of a session in the list, as text: the nanoseconds since 1970, and its id.
fn place_of(info: &SessionInfo) -> String {
    let since = info.updated_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}.{}", since.as_nanos(), info.id)
}

fn parse_place(place: &str) -> Answer<SessionInfo> {
    let parsed = place.split_once('.').and_then(|(nanos, id)| {
        let updated_at = UNIX_EPOCH.checked_add(Duration::from_nanos(nanos.parse().ok()?))?;
        Some(SessionInfo { id: id.to_owned(), version: 0, origin: None, updated_at })
    });
    let message = "`after` is the text `next` of the page before";
    parsed.ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, message))
}

/// The first words of the user. They do not change.
async fn title(app: &App, info: &SessionInfo) -> String {
    let titles = || app.titles.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(title) = titles().get(&info.id) {
        return title.clone();
    }
    let entries = app.store.load(&info.id, 0).await.ok().flatten();
    let said = |entry: &Entry| match entry {
        Entry::Item(item) => item.as_user().map(turnstream::item::Content::text),
        _ => None,
    };
    let Some(words) = entries.iter().flatten().find_map(said) else { return String::new() };
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut title: String = words.chars().take(MAX_TITLE).collect();
    if title.len() < words.len() {
        title.push('…');
    }
    let mut titles = titles();
    if titles.len() >= 10_000 {
        titles.clear();
    }
    titles.insert(info.id.clone(), title.clone());
    title
}

#[derive(Deserialize)]
pub(crate) struct MessagesQuery {
    before: Option<usize>,
    limit: Option<usize>,
}

/// The entries before a number, at most 200, without what only providers read.
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(query): Query<MessagesQuery>,
) -> Answer<Json<Value>> {
    let open = app.session(&id).await?;
    let entries = open.session.entries().await?;
    let end = query.before.unwrap_or(usize::MAX).min(entries.len());
    let start = end.saturating_sub(query.limit.unwrap_or(100).clamp(1, MAX_PAGE));
    let shown: Vec<Value> = entries[start..end]
        .iter()
        .zip(start..)
        .map(|(entry, number)| json!({ "number": number, "entry": shown_entry(entry) }))
        .collect();
    Ok(Json(json!({
        "messages": shown,
        "total": entries.len(),
        "state": state_name(&open.session),
    })))
}

/// An entry as the page gets it.
fn shown_entry(entry: &Entry) -> Value {
    match entry {
        Entry::Item(item) => {
            let mut item = item.clone();
            item.provider_data = None;
            match item.kind {
                ItemKind::Other => json!({ "type": "other" }),
                _ => json!(item),
            }
        }
        // The story of a sub-agent that waits.
        Entry::Nested { call_id, .. } => json!({ "type": "nested", "call_id": call_id }),
        entry => json!(entry),
    }
}

fn state_name(session: &Session) -> &'static str {
    match session.state() {
        SessionState::Idle => "idle",
        SessionState::Pending { .. } => "pending",
        SessionState::Unfinished { .. } => "unfinished",
    }
}

/// The traces of the last runs that this process has seen.
pub(crate) async fn trace(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Answer<Json<Vec<RunTrace>>> {
    let open: Arc<OpenSession> = app.session(&id).await?;
    let traces = open.runs().to_traces();
    Ok(Json(traces))
}

/// The model, as the page shows it.
pub(crate) async fn about(State(app): State<Arc<App>>) -> Json<Value> {
    let price =
        app.about.price.map(|price| json!({ "input": price.input, "output": price.output }));
    Json(json!({ "model": app.about, "price": price, "now": now_ms() }))
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Whether the server is well, and how much it does.
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
