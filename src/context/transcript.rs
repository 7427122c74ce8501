//! Formats a conversation as plain text, for a model that reads the conversation but does not
//! continue it.

use std::fmt::Write;

use crate::item::{Content, Item, ItemKind, Part, truncate_middle};

/// Formats messages, calls and results as text. Each result and each call's arguments are limited
/// to `max_bytes` bytes, and reasoning and provider-specific items are left out.
pub(super) fn format_transcript<'a>(
    items: impl IntoIterator<Item = &'a Item>,
    max_bytes: usize,
) -> String {
    let mut text = String::new();
    for item in items.into_iter().filter(|item| !item.tombstone) {
        match &item.kind {
            ItemKind::System { text: content } => push_section(&mut text, "instruction", content),
            ItemKind::User { content } => {
                push_section(&mut text, "user", &content_text(content, ""));
            }
            ItemKind::Text { text: content } => push_section(&mut text, "assistant", content),
            // The call of an interrupted turn is void.
            ItemKind::ToolCall(_) if item.interrupted => {}
            ItemKind::ToolCall(call) => {
                let arguments = truncate_middle(call.arguments_or_empty_object().into(), max_bytes);
                push_section(&mut text, &format!("assistant calls {}", call.name), &arguments);
            }
            ItemKind::ToolResult(result) => {
                let head = format!("result of {}, {}", result.name, result.kind);
                push_section(
                    &mut text,
                    &head,
                    &truncate_middle(content_text(&result.content, ""), max_bytes),
                );
            }
            ItemKind::Reasoning { .. } | ItemKind::Other => {}
        }
    }
    text
}

/// Returns one line for each call, oldest first, with the tool's name, the arguments, and the kind
/// of result.
pub(super) fn call_summary(items: &[&Item]) -> String {
    let mut text = String::new();
    let live = || items.iter().filter(|item| !item.tombstone);
    let valid = live().filter(|item| !item.interrupted);
    for call in valid.filter_map(|item| item.as_tool_call()) {
        let arguments =
            truncate_middle(call.arguments_or_empty_object().into(), 200).replace('\n', " ");
        let mut results = live().filter_map(|item| item.as_tool_result());
        let result = results.find(|result| result.call_id == call.call_id);
        let kind = result.map_or_else(|| "no result".to_owned(), |result| result.kind.to_string());
        let _ = writeln!(text, "- {} {arguments}: {kind}", call.name);
    }
    text
}

fn push_section(text: &mut String, who: &str, content: &str) {
    // Writing to a string never fails.
    let _ = write!(text, "[{who}]\n{content}\n\n");
}

/// Returns the content as text, with a placeholder for each image or file.
pub(super) fn content_text(content: &Content, left_out: &str) -> String {
    let part_words = |part: &Part| match part {
        Part::Text { text } => text.to_string(),
        Part::Image(media) | Part::File(media) => format!("\n[{}{left_out}]\n", media.media_type),
    };
    match content {
        Content::Text(text) => text.to_string(),
        Content::Parts(parts) => parts.iter().map(part_words).collect(),
    }
}
