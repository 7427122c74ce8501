//! Shortens text from a server.

use turnstream::item::Content;

/// Shortens a text to at most `max_bytes`, by cutting out its middle.
pub(crate) fn truncate_middle(text: String, max_bytes: usize) -> String {
    let content = Content::from(text);
    content.truncate_middle(max_bytes, None).unwrap_or(content).text()
}
