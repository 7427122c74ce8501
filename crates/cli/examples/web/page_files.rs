//! The static files of the page.
//!
//! NOTE: the example `fleet` of the package `turnstream-restate` serves the same page with this
//! file. The page reads from `/about` what its server offers.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

macro_rules! files {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("page/", $name)))),*] };
}

/// All files of the page: it loads nothing from other servers.
const FILES: [(&str, &str); 21] = files!(
    "page.css" "icon.svg" "main.js" "server.js" "event_reader.js" "conversation.js" "tool_card.js"
    "argument_list.js" "json_text.js" "text_box.js" "visible_text.js" "approval_card.js"
    "give_up_question.js" "thinking_sign.js" "markdown.js" "words.js" "elements.js"
    "session_list.js" "grants_dialog.js" "trace_dialog.js" "streaming-markdown/smd.js"
);

/// The routes of the page and its files.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let page = async || with_type("html", include_str!("page/index.html"));
    Router::new().route("/", get(page)).route("/page/{*file}", get(file))
}

async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, _)| *file == name) {
        Some((_, text)) => with_type(name.rsplit('.').next().unwrap_or_default(), text),
        None => (StatusCode::NOT_FOUND, "there is no such file").into_response(),
    }
}

fn with_type(extension: &str, text: &'static str) -> Response {
    let media_type = match extension {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    };
    // The next server at this address may have another version of the files.
    ([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-cache")], text)
        .into_response()
}

/// The server's time, from which the page computes how long ago sessions were written.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
