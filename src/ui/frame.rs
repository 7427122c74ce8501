//! The lines of a server-sent event.

use std::io::Write;

use serde::Serialize;

/// Writes an event that has nothing but data: one line, since no value of this crate has a line end outside of
/// its strings.
pub(super) fn write_data(out: &mut Vec<u8>, data: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    let begin = out.len();
    if serde_json::to_writer(&mut *out, data).is_err() {
        // No value of ours fails; half a value must not go out.
        out.truncate(begin);
        out.extend_from_slice(b"{\"type\":\"unknown\"}");
    }
    out.extend_from_slice(b"\n\n");
}

/// Writes a comment that readers pass over.
pub(super) fn write_keep_alive(out: &mut Vec<u8>) {
    out.extend_from_slice(b": keep-alive\n\n");
}

pub(super) fn write_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector does not fail.
    let _ = out.write_fmt(text);
}
