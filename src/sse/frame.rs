//! What the bytes of one frame mean.

use std::convert::Infallible;
use std::iter::once;
use std::ops::Range;

use eventsource_stream::{Event, EventStream};
use futures::{FutureExt, StreamExt, stream};
use serde::Deserialize;

use crate::error::{Error, ErrorKind};

/// The event type of a frame that does not name one.
const DEFAULT_EVENT: &str = "message";

/// The event type of a frame with a field `error`. The specification has no such field, but older
/// versions of llama.cpp and servers that are built on it send their errors in one:
/// <https://github.com/ggml-org/llama.cpp/issues/16104>.
const ERROR_EVENT: &str = "error";

/// One event of the stream, lent by the [`FrameReader`](super::FrameReader) that cut it.
///
/// The fields `id` and `retry` are absent: they serve reconnection, and a turn that was cut off is
/// asked for again instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame<'a> {
    /// The event type; `message` when the server did not name one, as the specification has it.
    pub event: &'a str,
    /// The values of the `data` lines, joined by line feeds. May be empty.
    pub data: &'a str,
}

impl<'a> Frame<'a> {
    /// A frame of an event type and its data, for a framing of your own.
    pub fn new(event: &'a str, data: &'a str) -> Self {
        Self { event, data }
    }

    /// Reads the data as JSON.
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
    /// [`Protocol`](ErrorKind::Protocol) if it is not JSON or does not fit the type.
    pub fn json<T: Deserialize<'a>>(&self) -> Result<T, Error> {
        serde_json::from_str(self.data).map_err(|error| {
            let message = format!("a frame cannot be read: {error}");
            Error::new(ErrorKind::Protocol, message).with_source(error)
        })
    }

    /// Lends a frame of which [`FrameFields`] knows every line.
    ///
    /// What is not UTF-8 is replaced, and the result kept in `rooms` while it is lent.
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

/// Error of a frame that is larger than the reader's cap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event is larger than {max} bytes")]
#[non_exhaustive]
pub struct FrameTooLarge {
    /// The cap, in bytes.
    pub max: usize,
}

/// Where in a frame its fields are, as far as its lines have been seen.
#[derive(Debug, Default)]
pub(super) struct FrameFields {
    event: Option<Range<usize>>,
    data: Option<Range<usize>>,
    /// The data was in a field `error`.
    is_error: bool,
    needs_parser: bool,
}

/// What is to be done with a whole frame.
#[derive(Debug, Clone, Copy)]
pub(super) enum FrameKind {
    /// Nothing is dispatched.
    Empty,
    /// Beside comments it has exactly one `data:` and at most one `event:` line.
    Simple,
    /// It has other lines: [`ask`].
    NeedsParser,
}

impl FrameFields {
    /// Takes note of the line that begins `at` bytes into the frame.
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

    /// Says what is to be done with the frame, now that all its lines are noted.
    pub(super) fn frame_kind(&self) -> FrameKind {
        // > If the data buffer is an empty string, set the data buffer and the event type buffer
        // > to the empty string and return.
        //
        // A `data:` line without a value leaves a line feed in that buffer, hence is dispatched.
        match self.data {
            _ if self.needs_parser => FrameKind::NeedsParser,
            Some(_) => FrameKind::Simple,
            None => FrameKind::Empty,
        }
    }
}

/// Asks `eventsource-stream` what a frame means.
///
/// It is handed one line at a time, since it moves all the rest of its buffer after each line.
/// The comment in front keeps a U+FEFF from being its first character, which makes it panic.
/// Every line ends in a line feed, for it waits for ever behind a final carriage return.
///
/// Where it has a field `error`, that is its data.
pub(super) fn parse_with_library(frame: &[u8]) -> Option<Event> {
    let is_error = |line: &&[u8]| line.starts_with(b"error:");
    let lines = frame
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        // The gap within a CRLF; a frame has no blank lines.
        .filter(|line| !line.is_empty() && !is_comment_line(line));
    let tells_of_error = lines.clone().any(|line| is_error(&line));
    let lines = lines
        .filter(|line| is_error(line) || !tells_of_error)
        .map(|line| format!("{}\n", String::from_utf8_lossy(line)))
        .map(|line| line.replacen("error:", "event: error\ndata:", usize::from(tells_of_error)));
    let lines = once(":\n".to_owned()).chain(lines).chain(once("\n".to_owned()));
    EventStream::new(stream::iter(lines.map(Ok::<_, Infallible>)))
        .next()
        // Never pending, as all lines are here; never an error, as all are UTF-8.
        .now_or_never()??
        .ok()
}

fn is_comment_line(line: &[u8]) -> bool {
    line.starts_with(b":")
}

/// Borrows `bytes` as text, or a repaired copy of them that moves into `room`.
fn text<'a>(bytes: &'a [u8], room: &'a mut String) -> &'a str {
    str::from_utf8(bytes).unwrap_or_else(|_| replace_invalid_utf8(bytes, room))
}

#[cold]
fn replace_invalid_utf8<'a>(bytes: &[u8], room: &'a mut String) -> &'a str {
    *room = String::from_utf8_lossy(bytes).into_owned();
    room
}
