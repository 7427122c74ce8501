//! The files of the page, which is that of the example `web`.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::failure::Failure;

/// Includes a file of the page.
macro_rules! page_file {
    ($name:literal) => {
        include_str!(concat!("../../../cli/examples/web/page/", $name))
    };
}

/// All files of the page: it loads nothing from other servers.
const FILES: &[(&str, &str, &str)] = &[
    ("page.css", "text/css; charset=utf-8", CSS),
    ("icon.svg", "image/svg+xml", page_file!("icon.svg")),
    ("main.js", JS, page_file!("main.js")),
    ("server.js", JS, page_file!("server.js")),
    ("event_reader.js", JS, page_file!("event_reader.js")),
    ("conversation.js", JS, page_file!("conversation.js")),
    ("tool_card.js", JS, page_file!("tool_card.js")),
    ("argument_list.js", JS, page_file!("argument_list.js")),
    ("json_text.js", JS, page_file!("json_text.js")),
    ("text_box.js", JS, page_file!("text_box.js")),
    ("visible_text.js", JS, page_file!("visible_text.js")),
    ("approval_card.js", JS, page_file!("approval_card.js")),
    ("give_up_question.js", JS, page_file!("give_up_question.js")),
    ("thinking_sign.js", JS, page_file!("thinking_sign.js")),
    ("markdown.js", JS, page_file!("markdown.js")),
    ("words.js", JS, page_file!("words.js")),
    ("elements.js", JS, page_file!("elements.js")),
    ("session_list.js", JS, page_file!("session_list.js")),
    ("trace_dialog.js", JS, page_file!("trace_dialog.js")),
    ("streaming-markdown/smd.js", JS, page_file!("streaming-markdown/smd.js")),
];

const JS: &str = "text/javascript; charset=utf-8";

/// The style of the page, without the buttons whose routes do not exist here.
const CSS: &str =
    concat!(page_file!("page.css"), "\n#regenerate, #show-trace { display: none; }\n");

pub(crate) async fn page() -> Response {
    with_type("text/html; charset=utf-8", page_file!("index.html"))
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
