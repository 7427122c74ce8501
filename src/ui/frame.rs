//! Writes the lines of server-sent events.

use std::io::Write;

use serde::Serialize;

use crate::sse::escape_line_separators;

/// Writes an event that contains only data. The data is always a single line, because line breaks
/// in serialized values are escaped.
pub(super) fn write_data(out: &mut Vec<u8>, data: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    let begin = out.len();
    if serde_json::to_writer(&mut *out, data).is_err() {
        // Serializing this crate's values never fails. If serialization failed nevertheless, the
        // client must not receive a partial value.
        out.truncate(begin);
        out.extend_from_slice(b"{\"type\":\"unknown\"}");
    }
    escape_line_separators(out, begin);
    out.extend_from_slice(b"\n\n");
}

/// Writes a comment, which readers ignore.
pub(super) fn write_keep_alive(out: &mut Vec<u8>) {
    out.extend_from_slice(b": keep-alive\n\n");
}

pub(super) fn write_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector does not fail.
    let _ = out.write_fmt(text);
}
