//! The routes for AI SDK clients.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Map, Value};
use turnstream::Item;
use turnstream::hub::Command;
use turnstream::ui::RequestError;
use turnstream::ui::ai_sdk::{AiSdk, ChatRequest, ClientAction, Version};

use super::call::{Answer, Call, hold, json};
use super::failure::Failure;
use super::response::to_axum;
use super::start::Start;

/// `?version=7` for clients of `ai` 7; the default is 6.
#[derive(Deserialize)]
struct ChatQuery {
    version: Option<u8>,
}

fn settings(call: &Call) -> Result<AiSdk, Failure> {
    let query: ChatQuery = call.query()?;
    let version = match query.version {
        Some(5) => Version::V5,
        Some(7) => Version::V7,
        _ => Version::V6,
    };
    let settings = AiSdk::new(version).with_error_texts(call.server.reader_texts());
    Ok(match call.server.0.partials.clone() {
        Some(values) => settings.with_partials(values),
        None => settings,
    })
}

pub(super) async fn chat(call: Call) -> Answer {
    let settings = settings(&call)?;
    let limits = &call.server.0.limits.requests;
    let request = ChatRequest::parse(call.content_type(), &call.body.bytes, limits)?;
    let open = call.open_id(&request.chat_id).await?;
    let slot = call.take_reader()?;
    let _starting = open.starting.lock().await;
    let (session, agent) = (&open.session, &call.server.0.agent);
    let (start, continued) = match request.action(session, agent)? {
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
        _ => return Err(RequestError::new(400, "this action is not supported here").into()),
    };
    let started = call.server.start(&call.principal, &open, agent.clone(), start).await;
    let (reader, started) = started?;
    let settings = match continued {
        Some(id) => settings.continue_message(id),
        None => match open.runs().get(&started.run) {
            Some(record) => settings.with_message_id(record.message_id.as_str()),
            None => settings,
        },
    };
    Ok(to_axum(settings.respond(hold(reader.into_events(), slot))))
}

/// Streams the active run from its start.
pub(super) async fn resume(call: Call) -> Answer {
    let open = call.open().await?;
    let mut settings = settings(&call)?;
    let run = call.active_run(&open).await?;
    let slot = run.is_some().then(|| call.take_reader()).transpose()?;
    let reader = run.map(|run| call.server.0.hub.read_any_run(&run, None));
    if let Some(reader) = &reader
        && let Some(record) = open.runs().get(reader.run_id())
    {
        settings = settings.with_message_id(record.message_id.as_str());
    }
    let events = reader.map(|reader| hold(reader.into_events(), slot));
    Ok(to_axum(settings.respond_to_resume(events)))
}

/// Interrupts the run. Closing the stream does not. The request needs no body.
pub(super) async fn stop(call: Call) -> Answer {
    if !call.body.bytes.is_empty() {
        call.json::<Map<String, Value>>()?;
    }
    let open = call.open_existing().await?;
    if let Some(run) = call.active_run(&open).await? {
        call.server.0.hub.send(&run, Command::Interrupt).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The messages that a page shows first.
pub(super) async fn messages(call: Call) -> Answer {
    let open = call.open().await?;
    let messages = settings(&call)?.load_messages(&open.session, &call.server.0.agent).await?;
    json(StatusCode::OK, messages)
}
