//! The files of the page.
//!
//! NOTE: the example `fleet` of the package `turnstream-restate` serves the same page with this
//! file. The page reads from `/about` what its server offers.

macro_rules! page {
    ($($name:literal)*) => {
        [("/", include_bytes!("page/index.html")),
         $((concat!("/page/", $name), include_bytes!(concat!("page/", $name)))),*]
    };
}

/// The path and the content of each file. The page loads nothing from other servers.
pub(crate) const FILES: [(&str, &[u8]); 22] = page!(
    "page.css" "icon.svg" "main.js" "server.js" "event_reader.js" "conversation.js" "tool_card.js"
    "argument_list.js" "json_text.js" "text_box.js" "visible_text.js" "approval_card.js"
    "give_up_question.js" "thinking_sign.js" "markdown.js" "words.js" "elements.js"
    "session_list.js" "grants_dialog.js" "trace_dialog.js" "streaming-markdown/smd.js"
);
