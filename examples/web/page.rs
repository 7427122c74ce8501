//! The page, and all routes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::Stream;
use turnstream::ui::ClientLimits;

use crate::app::App;
use crate::failure::Failure;
use crate::{access, ag_ui, chat, sessions};

/// The files of the page: nothing of it comes from elsewhere.
const FILES: &[(&str, &str, &str)] = &[
    ("page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("main.js", JS, include_str!("page/main.js")),
    ("server.js", JS, include_str!("page/server.js")),
    ("event_reader.js", JS, include_str!("page/event_reader.js")),
    ("conversation.js", JS, include_str!("page/conversation.js")),
    ("tool_card.js", JS, include_str!("page/tool_card.js")),
    ("approval_card.js", JS, include_str!("page/approval_card.js")),
    ("markdown.js", JS, include_str!("page/markdown.js")),
    ("words.js", JS, include_str!("page/words.js")),
    ("elements.js", JS, include_str!("page/elements.js")),
    ("session_list.js", JS, include_str!("page/session_list.js")),
    ("trace_dialog.js", JS, include_str!("page/trace_dialog.js")),
    ("streaming-markdown/smd.js", JS, include_str!("page/streaming-markdown/smd.js")),
];

const JS: &str = "text/javascript; charset=utf-8";

pub(crate) fn router(app: Arc<App>) -> Router {
    let session = Router::new()
        .route("/runs", post(sessions::start))
        .route("/events", get(sessions::events))
        .route("/stop", post(sessions::stop))
        .route("/steer", post(sessions::steer))
        .route("/approve", post(sessions::approve))
        .route("/deny", post(sessions::deny))
        .route("/fork", post(sessions::fork))
        .route("/regenerate", post(sessions::regenerate))
        .route("/messages", get(sessions::messages))
        .route("/trace", get(sessions::trace));
    Router::new()
        .route("/", get(page))
        .route("/page/{*file}", get(file))
        .route("/login", get(access::login))
        .route("/health", get(sessions::health))
        .route("/about", get(sessions::about))
        .route("/sessions", get(sessions::list))
        .nest("/sessions/{id}", session)
        .route("/api/chat", post(chat::chat))
        .route("/api/chat/{id}/stream", get(chat::resume))
        .route("/api/chat/{id}/stop", post(chat::stop))
        .route("/api/chat/{id}/messages", get(chat::messages))
        .route("/ag-ui", post(ag_ui::run))
        .fallback(async || Failure::not_found("there is no such page"))
        .layer(DefaultBodyLimit::max(ClientLimits::default().max_bytes))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), access::guard))
        .with_state(app)
}

async fn page() -> Response {
    with_type("text/html; charset=utf-8", include_str!("page/index.html"))
}

async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some((_, media_type, text)) => with_type(media_type, text),
        None => Failure::not_found("there is no such file").into_response(),
    }
}

fn with_type(media_type: &'static str, text: &'static str) -> Response {
    // A server of another version may be next at this address.
    ([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-cache")], text)
        .into_response()
}

/// The body of a response of `turnstream::ui`.
pub(crate) trait ToBody {
    fn to_body(self) -> Body;
}

impl ToBody for String {
    fn to_body(self) -> Body {
        self.into()
    }
}

impl<S, E> ToBody for turnstream::ui::ResponseBody<S, E>
where
    Self: Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
{
    fn to_body(self) -> Body {
        Body::from_stream(self)
    }
}

/// A response of `turnstream::ui` for this server.
pub(crate) fn to_axum<B: ToBody>(response: turnstream::ui::Response<B>) -> Response {
    let builder = Response::builder().status(response.status);
    let builder = response
        .headers
        .into_iter()
        .fold(builder, |builder, (name, value)| builder.header(name, value));
    let built = builder.body(response.body.to_body());
    built.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
