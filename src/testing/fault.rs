//! Faults of a response, as data.

use std::time::Duration;

use crate::error::Error;

/// A fault of an [`Answer`](crate::testing::Answer).
///
/// Several faults may be combined, in any order. Faults of the content are applied first, then
/// those of the framing, then those of the transport. All randomness comes from a seed.
///
/// ```
/// use turnstream::testing::{FaultPosition, Answer, Fault, Wire};
///
/// let answer = Answer::reply("Hello, world!").with_fault(Fault::NoDoneMarker);
/// let bytes = answer.to_bytes(Wire::OpenAiChat);
/// assert!(!String::from_utf8(bytes).unwrap().contains("[DONE]"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The connection closes without the HTTP end of the body.
    Cut(FaultPosition),
    /// The body ends as if it were complete, and the transport reports no error.
    EndEarly(FaultPosition),
    /// Nothing more is sent, and the connection stays open until the client closes it.
    Stall(FaultPosition),
    /// The connection is reset. The client may lose bytes that it has not read yet.
    Reset(FaultPosition),
    /// An error is sent in the stream, in the wire's own format, and the body ends. This fault has
    /// no effect on an answer that is not a stream.
    Error(FaultPosition, Error),
    /// The body ends before the terminal marker. Everything after the marker is missing, too.
    NoTerminalMarker,
    /// The body ends before the marker that follows the terminal marker (`[DONE]`, `message_stop`).
    /// This fault has no effect on Responses, Gemini and Ollama, where the terminal marker comes
    /// last.
    NoDoneMarker,
    /// Noise is sent before every event.
    InsertNoise(Noise),
    /// All lines end with this line end instead of the wire's own line ends.
    LineEnds(LineEnd),
    /// The blank line that ends the last event is missing.
    NoFinalBlankLine,
    /// The body is compressed with gzip and has the matching header, although the client did not
    /// request compression.
    Gzip,
    /// The bytes are sent in chunks of this size, regardless of frames; a size of 0 counts as 1.
    FixedSizeChunks(usize),
    /// The bytes are sent in chunks of 1 to `max_len` bytes. The same seed results in the same
    /// chunk sizes.
    RandomSizeChunks {
        /// The seed of the random sizes.
        seed: u64,
        /// The maximum size of a chunk in bytes; a size of 0 counts as 1.
        max_len: usize,
    },
    /// The server waits for this duration before each chunk, by tokio's clock.
    DelayPerChunk(Duration),
}

/// The position of a fault in a body. If the body is shorter, the fault happens at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultPosition {
    /// The position after this number of bytes of the body as it is sent.
    Bytes(usize),
    /// The position after this number of events of the wire. [`Noise`] does not count as an event.
    /// An answer that is not a stream has no events.
    Events(usize),
}

/// Content without meaning that may be sent between the events of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Noise {
    /// Comments like those that gateways send to keep a connection open. On wires of JSON lines,
    /// empty lines are sent instead.
    Comments,
    /// The wire's own keep-alive: `ping` on Anthropic, `keepalive` on Responses, an empty line on
    /// Ollama, and comments on all other wires. Ollama has no comments.
    Pings,
    /// Events of an unknown type. On the chat wire, Gemini and Ollama, whose events have no types,
    /// chunks without choices, candidates or a message are sent instead.
    UnknownEvents,
    /// Blank lines between the events.
    BlankLines,
}

/// A line end. An event stream may have any of the three line ends; on JSON lines, `Cr` has no
/// effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineEnd {
    /// A line feed, `\n`.
    Lf,
    /// A carriage return and a line feed, `\r\n`.
    CrLf,
    /// A carriage return, `\r`.
    Cr,
}

impl LineEnd {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
        }
    }
}
