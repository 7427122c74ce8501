//! Splits a body that contains a single JSON value on each line.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use super::{Framing, MAX_FRAME_BYTES};
use crate::error::{Error, ErrorKind};
use crate::sse::Frame;

/// Splits a body of JSON lines, also called NDJSON, into frames. Each line becomes a frame with the
/// event type `message`. Blank lines and a byte-order mark are skipped.
///
/// The last line does not have to end with a line feed. The maximum length of a line is 64 MiB.
#[derive(Debug, Default)]
pub struct NdJson {
    bytes: BytesMut,
    /// The number of buffered bytes that have already been searched and contain no line feed.
    searched_len: usize,
    has_failed: bool,
    /// The line from which the returned frame borrows.
    line: String,
}

impl NdJson {
    fn lend_line(&mut self, line: &[u8]) -> Frame<'_> {
        self.line.clear();
        self.line.push_str(&String::from_utf8_lossy(line));
        Frame::new("message", &self.line)
    }
}

impl Framing for NdJson {
    const MEDIA_TYPE: &'static str = "application/x-ndjson";

    fn feed(&mut self, chunk: Bytes) {
        if !self.has_failed {
            self.bytes.extend_from_slice(&chunk);
        }
    }

    fn next_frame(&mut self) -> Option<Result<Frame<'_>, Error>> {
        loop {
            let end =
                memchr(b'\n', &self.bytes[self.searched_len..]).map(|end| self.searched_len + end);
            self.searched_len = end.unwrap_or(self.bytes.len());
            if self.searched_len > MAX_FRAME_BYTES {
                *self = Self { has_failed: true, ..Self::default() };
                let message = format!("a line is larger than {MAX_FRAME_BYTES} bytes");
                return Some(Err(Error::new(ErrorKind::TooLarge, message)));
            }
            let bytes = self.bytes.split_to(end?);
            self.bytes.advance(1);
            self.searched_len = 0;
            // Only the first line may start with a byte-order mark, but skipping a byte-order mark
            // on other lines does no harm.
            let line = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes).trim_ascii();
            if !line.is_empty() {
                return Some(Ok(self.lend_line(line)));
            }
        }
    }

    fn finish(&mut self) -> Option<Result<Frame<'_>, Error>> {
        if !self.bytes.is_empty() && !self.bytes.ends_with(b"\n") {
            self.bytes.extend_from_slice(b"\n");
        }
        self.next_frame()
    }

    fn detect_other_format(first: u8) -> Option<&'static str> {
        match first {
            b'[' => Some("one JSON document"),
            b'<' => Some("a web page"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: &[&str]) {
        for step in 1..=body.len().max(1) {
            let mut reader = NdJson::default();
            let mut lines = Vec::new();
            for chunk in body.as_bytes().chunks(step) {
                reader.feed(Bytes::copy_from_slice(chunk));
                while let Some(frame) = reader.next_frame() {
                    lines.push(frame.unwrap().data.to_owned());
                }
            }
            while let Some(frame) = reader.finish() {
                lines.push(frame.unwrap().data.to_owned());
            }
            assert_eq!(lines, expected, "in chunks of {step}");
        }
    }

    #[test]
    fn each_line_is_a_frame_for_any_split_of_the_bytes() {
        check("{\"a\":1}\n{\"b\":2}\r\n", &["{\"a\":1}", "{\"b\":2}"]);
        check("\n\n{\"a\":\"é\"}\n \r\n{}", &["{\"a\":\"é\"}", "{}"]);
        check("", &[]);
        check("\n \n\n", &[]);
    }

    #[test]
    fn lines_after_blank_lines_are_read() {
        let mut reader = NdJson::default();
        reader.feed("\n\n1".into());
        assert_eq!(reader.finish().unwrap().unwrap().data, "1");
        assert!(reader.finish().is_none());
    }

    #[test]
    fn a_line_without_end_is_too_large() {
        let mut reader = NdJson::default();
        let mebibyte = Bytes::from(vec![b'x'; 1 << 20]);
        for _ in 0..64 {
            reader.feed(mebibyte.clone());
            assert!(reader.next_frame().is_none());
        }
        reader.feed(mebibyte);
        assert_eq!(reader.next_frame().unwrap().unwrap_err().kind(), ErrorKind::TooLarge);
        reader.feed("\n1\n".into());
        assert!(reader.next_frame().is_none());
        assert!(reader.finish().is_none());
    }

    #[test]
    fn a_line_in_a_single_chunk_has_the_same_limit() {
        let mut reader = NdJson::default();
        reader.feed(Bytes::from(vec![b'x'; MAX_FRAME_BYTES]));
        reader.feed("\n".into());
        assert_eq!(reader.next_frame().unwrap().unwrap().data.len(), MAX_FRAME_BYTES);
        let mut line = vec![b'x'; MAX_FRAME_BYTES + 1];
        line.push(b'\n');
        reader.feed(line.into());
        let error = reader.next_frame().unwrap().err().map(|error| error.kind());
        assert_eq!(error, Some(ErrorKind::TooLarge));
        assert!(reader.next_frame().is_none());
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        check("\u{feff}{\"a\":1}\n{}", &["{\"a\":1}", "{}"]);
        check("\u{feff}", &[]);
    }
}
