//! Parses a turn that consists of JSON lines. Each line is parsed as soon as it is complete.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::FusedStream;
use memchr::memchr;
use pin_project::pin_project;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::turn::{ParseError, PartialTurn, Text, Turn, TurnEvent};

/// The default maximum length of a line, in bytes.
const DEFAULT_MAX_LINE_BYTES: usize = 1024 * 1024;

/// A line from a turn's text, or a notice that all lines so far are void.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonLine<T> {
    /// A line that was parsed successfully.
    Object(T),
    /// A line that cannot be parsed. Later lines are still parsed.
    Invalid(LineError),
    /// The turn is starting over. All lines so far are void, and line numbers restart at 1.
    Retracted,
}

/// A line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// The line number within the turn, starting at 1.
    pub line: usize,
    /// The reason why the line cannot be parsed. The error's `text` field contains the line itself,
    /// and the line number in the error is always 1.
    pub error: ParseError,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.error)
    }
}

impl std::error::Error for LineError {}

/// The stream returned by the [`json_lines`](crate::stream::TurnStreamExt::json_lines) method.
/// Dropping it drops the stream of events.
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub struct JsonLines<S, T> {
    /// The stream of events, or `None` once it has ended.
    #[pin]
    events: Option<S>,
    line_parser: LineParser,
    /// The complete turn, until its last line has been parsed.
    completed_turn: Option<Arc<Turn>>,
    object_type: PhantomData<fn() -> T>,
}

impl<S, T> JsonLines<S, T> {
    pub(super) fn new(events: S) -> Self {
        let lines = LineParser { max_line_bytes: DEFAULT_MAX_LINE_BYTES, ..LineParser::default() };
        Self {
            events: Some(events),
            line_parser: lines,
            completed_turn: None,
            object_type: PhantomData,
        }
    }

    /// Sets the maximum length of a line in bytes; 1 MiB by default. A longer line is discarded,
    /// and a [`TooLong`](ParseError::TooLong) error is yielded in its place.
    pub fn with_max_line_bytes(mut self, bytes: usize) -> Self {
        self.line_parser.max_line_bytes = bytes;
        self
    }
}

impl<S, T> Stream for JsonLines<S, T>
where
    S: Stream<Item = Result<TurnEvent, Error>>,
    T: DeserializeOwned,
{
    type Item = Result<JsonLine<T>, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            if let Some(line) = this.line_parser.next() {
                return Poll::Ready(Some(Ok(line)));
            }
            if let Some(turn) = this.completed_turn.take() {
                return Poll::Ready(match ParseError::from_stop_reason(&turn) {
                    None => this.line_parser.take_last_line().map(Ok),
                    Some(error) => Some(Err(error.into())),
                });
            }
            let Some(events) = this.events.as_mut().as_pin_mut() else { return Poll::Ready(None) };
            let failed = match ready!(events.poll_next(cx)) {
                Some(Ok(TurnEvent::TextDelta { text, .. })) => {
                    this.line_parser.push(text);
                    continue;
                }
                Some(Ok(TurnEvent::Retracted { .. })) => {
                    this.line_parser.reset();
                    return Poll::Ready(Some(Ok(JsonLine::Retracted)));
                }
                Some(Ok(TurnEvent::TurnComplete { turn })) => {
                    *this.completed_turn = Some(turn);
                    this.events.set(None);
                    continue;
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => error,
                None => PartialTurn::default().into_error(None),
            };
            this.events.set(None);
            return Poll::Ready(Some(Err(failed)));
        }
    }
}

impl<S, T> FusedStream for JsonLines<S, T>
where
    S: Stream<Item = Result<TurnEvent, Error>>,
    T: DeserializeOwned,
{
    fn is_terminated(&self) -> bool {
        self.events.is_none() && self.completed_turn.is_none()
    }
}

impl<S, T> fmt::Debug for JsonLines<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonLines")
            .field("line", &self.line_parser.line_number)
            .finish_non_exhaustive()
    }
}

/// Splits pieces of text into lines, and parses each line. A line that lies within a single piece
/// is not copied.
#[derive(Default)]
struct LineParser {
    /// The piece that is being split, and the byte offset at which its unread part starts.
    current_piece: Option<(Text, usize)>,
    /// The start of the current line, from earlier pieces.
    partial_line: String,
    /// Whether to discard the rest of the current line because the line is too long and has already
    /// been reported.
    is_skipping: bool,
    /// The number of complete lines so far.
    line_number: usize,
    max_line_bytes: usize,
}

impl LineParser {
    fn push(&mut self, piece: Text) {
        self.current_piece = Some((piece, 0));
    }

    fn reset(&mut self) {
        *self = Self { max_line_bytes: self.max_line_bytes, ..Self::default() };
    }

    /// Returns the next complete line, or an error for a line that is too long. Blank lines and the
    /// fences of Markdown code blocks are skipped.
    fn next<T: DeserializeOwned>(&mut self) -> Option<JsonLine<T>> {
        while let Some((piece, at)) = self.current_piece.take() {
            let rest = piece.get(at..).unwrap_or_default();
            // Only a line feed ends a line, because JSON strings may contain the other Unicode line
            // separators.
            let Some((chunk, _)) =
                memchr(b'\n', rest.as_bytes()).and_then(|n| rest.split_at_checked(n))
            else {
                return self.buffer_partial_line(rest);
            };
            let next = at + chunk.len() + 1;
            self.line_number += 1;
            let line = match std::mem::take(&mut self.is_skipping) {
                true => None,
                false if self.partial_line.is_empty() => self.parse_line(chunk),
                false => {
                    self.partial_line.push_str(chunk);
                    let begun = std::mem::take(&mut self.partial_line);
                    let line = self.parse_line(&begun);
                    self.partial_line = begun;
                    self.partial_line.clear();
                    line
                }
            };
            self.current_piece = Some((piece, next));
            if line.is_some() {
                return line;
            }
        }
        None
    }

    /// Buffers the start of a line. If the line becomes too long, returns an error, and discards
    /// the rest of the line.
    fn buffer_partial_line<T>(&mut self, chunk: &str) -> Option<JsonLine<T>> {
        if self.is_skipping {
            return None;
        }
        if self.partial_line.len() + chunk.len() > self.max_line_bytes {
            self.partial_line = String::new();
            self.is_skipping = true;
            return Some(self.line_too_long_error(self.line_number + 1));
        }
        self.partial_line.push_str(chunk);
        None
    }

    /// Returns the last line of the text if it does not end with a line feed.
    fn take_last_line<T: DeserializeOwned>(&mut self) -> Option<JsonLine<T>> {
        let begun = std::mem::take(&mut self.partial_line);
        self.line_number += 1;
        self.parse_line(&begun)
    }

    /// Parses the line whose number is `line_number`.
    fn parse_line<T: DeserializeOwned>(&self, line: &str) -> Option<JsonLine<T>> {
        if line.len() > self.max_line_bytes {
            return Some(self.line_too_long_error(self.line_number));
        }
        let line = line.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        if line.is_empty() || line.starts_with("```") {
            return None;
        }
        Some(match ParseError::read_json(line) {
            Ok(object) => JsonLine::Object(object),
            Err(error) => JsonLine::Invalid(LineError { line: self.line_number, error }),
        })
    }

    fn line_too_long_error<T>(&self, line: usize) -> JsonLine<T> {
        JsonLine::Invalid(LineError {
            line,
            error: ParseError::TooLong { limit: self.max_line_bytes },
        })
    }
}
