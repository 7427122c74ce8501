//! Parses the bytes of a single frame.

use std::convert::Infallible;
use std::iter::once;
use std::ops::Range;

use eventsource_stream::{Event, EventStream};
use futures::{FutureExt, StreamExt, stream};
use serde::Deserialize;

use crate::error::{Error, ErrorKind};

/// The event type of a frame without an `event` field.
const DEFAULT_EVENT: &str = "message";

/// The event type of a frame with an `error` field. The specification does not define this field,
/// but older versions of llama.cpp, and servers built on it, use the field to report errors:
/// <https://github.com/ggml-org/llama.cpp/issues/16104>.
const ERROR_EVENT: &str = "error";

/// A single event from a stream, borrowed from the [`FrameReader`](super::FrameReader).
///
/// The `id` and `retry` fields are omitted, because they are intended for reconnecting. An
/// interrupted turn is not resumed but requested again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame<'a> {
    /// The event type. If the server sent no event type, the value is `message`, as the
    /// specification requires.
    pub event: &'a str,
    /// The values of the `data` lines, joined with line feeds. The data may be empty.
    pub data: &'a str,
}

impl<'a> Frame<'a> {
    /// Creates a frame with an event type and data, for use in a custom framing.
    pub fn new(event: &'a str, data: &'a str) -> Self {
        Self { event, data }
    }

    /// Deserializes the frame's data from JSON.
    ///
    /// ```
    /// use turnstream::framing::Frame;
    ///
    /// let frame = Frame::new("count", "[1, 2]");
    /// assert_eq!(frame.json::<Vec<u8>>()?, [1, 2]);
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns a [`Protocol`](ErrorKind::Protocol) error if the data is not valid JSON or does not
    /// match `T`.
    pub fn json<T: Deserialize<'a>>(&self) -> Result<T, Error> {
        serde_json::from_str(self.data).map_err(|error| {
            let message = format!("a frame cannot be read: {error}");
            Error::new(ErrorKind::Protocol, message).with_source(error)
        })
    }

    /// Creates a frame whose fields are borrowed from the ranges of `frame` that `fields` contains.
    /// All of the frame's lines must already have been scanned.
    ///
    /// Invalid UTF-8 is replaced, and the resulting text is stored in `rooms`.
    pub(super) fn from_fields(
        frame: &'a [u8],
        fields: &FrameFields,
        rooms: &'a mut [String; 2],
    ) -> Self {
        let [event_room, data_room] = rooms;
        let event = match &fields.event {
            Some(event) => text(&frame[event.clone()], event_room),
            None => "",
        };
        let data = match &fields.data {
            Some(data) => text(&frame[data.clone()], data_room),
            None => "",
        };
        let event = if fields.is_error { ERROR_EVENT } else { event };
        Self {
            // > If the event type buffer has a value other than the empty string, change the
            // > type of the newly created event to equal the value of the event type buffer.
            event: if event.is_empty() { DEFAULT_EVENT } else { event },
            data,
        }
    }
}

impl<'a> From<&'a Event> for Frame<'a> {
    fn from(Event { event, data, .. }: &'a Event) -> Self {
        Self { event, data }
    }
}

/// The error returned for a frame that is larger than the reader's limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event is larger than {max} bytes")]
#[non_exhaustive]
pub struct FrameTooLarge {
    /// The maximum size of a frame, in bytes.
    pub max: usize,
}

/// The ranges of a frame's fields in the lines scanned so far.
#[derive(Debug, Default)]
pub(super) struct FrameFields {
    event: Option<Range<usize>>,
    data: Option<Range<usize>>,
    /// Whether the data comes from an `error` field.
    is_error: bool,
    needs_parser: bool,
}

/// Determines how a complete frame is handled.
#[derive(Debug, Clone, Copy)]
pub(super) enum FrameKind {
    /// The frame dispatches no event.
    Empty,
    /// Apart from comments, the frame contains exactly one `data:` or `error:` line and at most one
    /// `event:` line.
    Simple,
    /// The frame contains other lines and must be parsed with [`parse_with_library`].
    NeedsParser,
}

impl FrameFields {
    /// Records the field in the line that starts at offset `at` in the frame.
    pub(super) fn scan_line(&mut self, line: &[u8], at: usize) {
        let (field, value) = if let Some(value) = line.strip_prefix(b"data:") {
            (&mut self.data, value)
        } else if let Some(value) = line.strip_prefix(b"event:") {
            (&mut self.event, value)
        } else if let Some(value) = line.strip_prefix(b"error:") {
            self.is_error = true;
            (&mut self.data, value)
        } else {
            // > If the line starts with a U+003A COLON character (:): ignore the line.
            self.needs_parser |= !is_comment_line(line);
            return;
        };
        // > If value starts with a U+0020 SPACE character, remove it from value.
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let end = at + line.len();
        self.needs_parser |= field.is_some();
        *field = Some(end - value.len()..end);
    }

    /// Returns how the frame is handled. All of the frame's lines must already have been scanned.
    pub(super) fn frame_kind(&self) -> FrameKind {
        // > If the data buffer is an empty string, set the data buffer and the event type buffer
        // > to the empty string and return.
        //
        // A `data:` line without a value leaves a line feed in the data buffer, so the frame is
        // dispatched.
        match self.data {
            _ if self.needs_parser => FrameKind::NeedsParser,
            Some(_) => FrameKind::Simple,
            None => FrameKind::Empty,
        }
    }
}

/// Parses a frame with `eventsource-stream`.
///
/// The parser receives one line at a time, because it would otherwise move the rest of its buffer
/// after each line. The leading comment prevents U+FEFF from being the first character, which would
/// make the parser panic. Every line ends with a line feed, because the parser would wait forever
/// after a final carriage return.
///
/// If the frame contains an `error` field, the field's value becomes the event's data.
pub(super) fn parse_with_library(frame: &[u8]) -> Option<Event> {
    let is_error = |line: &&[u8]| line.starts_with(b"error:");
    let lines = frame
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        // An empty line is the gap within a CRLF, since a frame has no blank lines.
        .filter(|line| !line.is_empty() && !is_comment_line(line));
    let tells_of_error = lines.clone().any(|line| is_error(&line));
    let lines = lines
        .filter(|line| is_error(line) || !tells_of_error)
        .map(|line| format!("{}\n", String::from_utf8_lossy(line)))
        .map(|line| line.replacen("error:", "event: error\ndata:", usize::from(tells_of_error)));
    let lines = once(":\n".to_owned()).chain(lines).chain(once("\n".to_owned()));
    EventStream::new(stream::iter(lines.map(Ok::<_, Infallible>)))
        .next()
        // The stream is never pending, because all lines are available. The stream never returns an
        // error, because all lines are UTF-8.
        .now_or_never()??
        .ok()
}

fn is_comment_line(line: &[u8]) -> bool {
    line.starts_with(b":")
}

/// Borrows `bytes` as a string. If the bytes are not valid UTF-8, a repaired copy is stored in
/// `room`.
fn text<'a>(bytes: &'a [u8], scratch: &'a mut String) -> &'a str {
    str::from_utf8(bytes).unwrap_or_else(|_| replace_invalid_utf8(bytes, scratch))
}

#[cold]
fn replace_invalid_utf8<'a>(bytes: &[u8], scratch: &'a mut String) -> &'a str {
    *scratch = String::from_utf8_lossy(bytes).into_owned();
    scratch
}
