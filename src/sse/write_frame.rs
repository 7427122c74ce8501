//! Writes server-sent event frames.

use memchr::memchr2;

/// Appends a server-sent event frame to `out`.
///
/// Each line of the data is written as a separate `data` line. A reader joins these lines with line
/// feeds, regardless of whether the line endings in `data` are LF, CR or CRLF. Line endings in
/// `event` are removed, so that the event type cannot inject other fields.
///
/// ```
/// # use turnstream::sse::write_frame;
/// let mut out = Vec::new();
/// write_frame(&mut out, Some("delta"), "two\nlines");
/// assert_eq!(out, b"event: delta\ndata: two\ndata: lines\n\n");
/// ```
pub fn write_frame(out: &mut Vec<u8>, event: Option<&str>, data: &str) {
    if let Some(event) = event {
        out.extend_from_slice(b"event: ");
        out.extend(event.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')));
        out.push(b'\n');
    }
    let mut rest = data;
    while let Some(end) = memchr2(b'\n', b'\r', rest.as_bytes()) {
        write_data_line(out, &rest[..end]);
        rest = rest[end..].strip_prefix("\r\n").unwrap_or(&rest[end + 1..]);
    }
    write_data_line(out, rest);
    out.push(b'\n');
}

fn write_data_line(out: &mut Vec<u8>, line: &str) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
}
