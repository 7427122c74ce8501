//! The route for AG-UI clients.

use turnstream::ui::RequestError;
use turnstream::ui::ag_ui::{AgUi, ClientAction, RunRequest};

use super::call::{Answer, Call, hold};
use super::response::to_axum;
use super::start::Start;

pub(super) async fn run(call: Call) -> Answer {
    let settings = &call.server.0;
    let request =
        RunRequest::parse(call.content_type(), &call.body.bytes, &settings.limits.requests)?;
    let agent = request.add_client_tools(&settings.agent)?;
    let open = call.open_id(&request.thread_id).await?;
    let slot = call.take_reader()?;
    let _starting = open.starting.lock().await;
    let start = match request.action(&open.session, &agent)? {
        ClientAction::Run(items) => Start::Say(items),
        ClientAction::Resume(verdicts) => Start::Resume(verdicts),
        _ => return Err(RequestError::new(400, "this action is not supported here").into()),
    };
    let (reader, _) = call.server.start(&call.principal, &open, agent, start).await?;
    let response = AgUi::new(&request).with_error_texts(call.server.reader_texts());
    let response = match settings.partials.clone() {
        Some(values) => response.with_partials(values),
        None => response,
    };
    Ok(to_axum(response.respond(hold(reader.into_events(), slot))))
}
