//! The route for AG-UI clients.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use turnstream::ui::ag_ui::{AgUi, ClientAction, RunRequest, refuse};
use turnstream::ui::{ClientLimits, ErrorTexts, RequestError};

use crate::app::App;
use crate::response::to_axum;
use crate::starts::Start;

pub(crate) async fn run(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Response {
    match answer(&app, &headers, &body).await {
        Ok(response) => response,
        Err(error) => to_axum(refuse(&error)),
    }
}

async fn answer(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, RequestError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let request = RunRequest::parse(content_type, body, &ClientLimits::default())?;
    let agent = request.add_client_tools(&app.agent)?;
    let open = app.session(&request.thread_id).await?;
    let _starting = open.starting.lock().await;
    let start = match request.action(&open.session, &agent)? {
        ClientAction::Run(items) => Start::Say(items),
        ClientAction::Resume(verdicts) => Start::Resume(verdicts),
        _ => return Err(RequestError::new(400, "this action is not supported here")),
    };
    let (reader, _) = app.start(&open, &agent, start).await?;
    let settings = AgUi::new(&request).with_error_texts(ErrorTexts::shown());
    Ok(to_axum(settings.respond(reader.into_events())))
}
