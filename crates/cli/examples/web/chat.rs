//! The routes for AI SDK clients.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use turnstream::Item;
use turnstream::hub::Command;
use turnstream::ui::ai_sdk::{AiSdk, ChatRequest, ClientAction, Version, refuse};
use turnstream::ui::{ClientLimits, ErrorTexts, RequestError};

use crate::app::App;
use crate::failure::Failure;
use crate::response::to_axum;
use crate::starts::Start;

/// `?version=7` for clients of `ai` 7; the default is 6.
#[derive(Deserialize)]
pub(crate) struct ChatQuery {
    version: Option<u8>,
}

impl ChatQuery {
    fn to_settings(&self) -> AiSdk {
        let version = match self.version {
            Some(5) => Version::V5,
            Some(7) => Version::V7,
            _ => Version::V6,
        };
        AiSdk::new(version).with_error_texts(ErrorTexts::shown())
    }
}

pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Query(query): Query<ChatQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match answer(&app, &query, &headers, &body).await {
        Ok(response) => response,
        Err(error) => to_axum(refuse(&error)),
    }
}

async fn answer(
    app: &Arc<App>,
    query: &ChatQuery,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, RequestError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let request = ChatRequest::parse(content_type, body, &ClientLimits::default())?;
    let open = app.session(&request.chat_id).await?;
    let _starting = open.starting.lock().await;
    let session = &open.session;
    let (start, continued) = match request.action(session, &app.agent)? {
        ClientAction::Run(input) => (Start::Say(vec![Item::user(input)]), None),
        ClientAction::Resume { message_id, verdicts } => {
            (Start::Resume(verdicts), Some(message_id))
        }
        ClientAction::Regenerate { before: from } => {
            (Start::Replace { from, items: Vec::new() }, None)
        }
        ClientAction::Edit { before: from, input } => {
            (Start::Replace { from, items: vec![Item::user(input)] }, None)
        }
        _ => return Err(RequestError::new(400, "this action is not supported here")),
    };
    let (reader, started) = app.start(&open, &app.agent, start).await?;
    let settings = query.to_settings();
    let settings = match continued {
        Some(id) => settings.continue_message(id),
        None => match open.runs().get(&started.run) {
            Some(record) => settings.with_message_id(record.message_id.as_str()),
            None => settings,
        },
    };
    Ok(to_axum(settings.respond(reader.into_events())))
}

/// Streams the active run from its start.
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(query): Query<ChatQuery>,
) -> Result<Response, Failure> {
    let open = app.session(&id).await?;
    let mut settings = query.to_settings();
    let run = app.hub.find_run(&id).await?;
    let reader = run.map(|run| app.hub.read_any_run(&run, None));
    if let Some(reader) = &reader
        && let Some(record) = open.runs().get(reader.run_id())
    {
        settings = settings.with_message_id(record.message_id.as_str());
    }
    Ok(to_axum(settings.respond_to_resume(reader.map(turnstream::hub::Reader::into_events))))
}

/// Interrupts the run. Closing the stream does not.
pub(crate) async fn stop(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    if let Some(run) = app.hub.find_run(&id).await? {
        app.hub.send(&run, Command::Interrupt).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The messages that a page shows first.
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(query): Query<ChatQuery>,
) -> Result<Json<Vec<Value>>, Failure> {
    let open = app.session(&id).await?;
    Ok(Json(query.to_settings().load_messages(&open.session, &app.agent).await?))
}
