//! The static files of the page.
//!
//! NOTE: the example `fleet` of the package `turnstream-restate` serves the same page with this
//! file, and with `requests`, `response`, `views` and `ended_runs`. The page reads from `/about`
//! what its server offers.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::failure::Failure;

/// All files of the page: it loads nothing from other servers.
const FILES: &[(&str, &str, &str)] = &[
    ("page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("main.js", JS, include_str!("page/main.js")),
    ("server.js", JS, include_str!("page/server.js")),
    ("event_reader.js", JS, include_str!("page/event_reader.js")),
    ("conversation.js", JS, include_str!("page/conversation.js")),
    ("tool_card.js", JS, include_str!("page/tool_card.js")),
    ("argument_list.js", JS, include_str!("page/argument_list.js")),
    ("json_text.js", JS, include_str!("page/json_text.js")),
    ("text_box.js", JS, include_str!("page/text_box.js")),
    ("visible_text.js", JS, include_str!("page/visible_text.js")),
    ("approval_card.js", JS, include_str!("page/approval_card.js")),
    ("give_up_question.js", JS, include_str!("page/give_up_question.js")),
    ("thinking_sign.js", JS, include_str!("page/thinking_sign.js")),
    ("markdown.js", JS, include_str!("page/markdown.js")),
    ("words.js", JS, include_str!("page/words.js")),
    ("elements.js", JS, include_str!("page/elements.js")),
    ("session_list.js", JS, include_str!("page/session_list.js")),
    ("grants_dialog.js", JS, include_str!("page/grants_dialog.js")),
    ("trace_dialog.js", JS, include_str!("page/trace_dialog.js")),
    ("streaming-markdown/smd.js", JS, include_str!("page/streaming-markdown/smd.js")),
];

const JS: &str = "text/javascript; charset=utf-8";

pub(crate) async fn page() -> Response {
    with_type("text/html; charset=utf-8", include_str!("page/index.html"))
}

pub(crate) async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some((_, media_type, text)) => with_type(media_type, text),
        None => Failure::not_found("there is no such file").into_response(),
    }
}

fn with_type(media_type: &'static str, text: &'static str) -> Response {
    // The next server at this address may have another version of the files.
    ([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-cache")], text)
        .into_response()
}
