//! Describes the faults that can be injected into a response.

use std::time::Duration;

use turnstream::error::Error;

/// A fault to inject into an [`Answer`](crate::Answer).
///
/// Several faults can be combined, in any order. Faults that change the content are applied first,
/// followed by those that change the framing, and then by those that affect the transport. Random
/// values are generated from a seed.
///
/// ```
/// use turnstream_testing::{FaultPosition, Answer, Fault, Wire};
///
/// let answer = Answer::reply("Hello, world!").with_fault(Fault::NoDoneMarker);
/// let bytes = answer.to_bytes(Wire::OpenAiChat);
/// assert!(!String::from_utf8(bytes).unwrap().contains("[DONE]"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Closes the connection without sending the final HTTP chunk, which marks the end of the body.
    Cut(FaultPosition),
    /// Ends the body as if it were complete, so the transport reports no error.
    EndEarly(FaultPosition),
    /// Stops sending data, but keeps the connection open until the client closes it.
    Stall(FaultPosition),
    /// Resets the connection. Bytes that the client has not read yet may be lost.
    Reset(FaultPosition),
    /// Sends an error within the stream, as defined by the wire format, and then ends the body.
    /// This fault has no effect on an answer that is not a stream.
    Error(FaultPosition, Error),
    /// Ends the body just before the terminal marker, which completes the turn.
    NoTerminalMarker,
    /// Ends the body after the terminal marker, without the marker that follows it (`[DONE]`,
    /// `message_stop`). This fault has no effect on the Responses, Gemini and Ollama wires, where
    /// nothing follows the terminal marker.
    NoDoneMarker,
    /// Sends noise before every event.
    InsertNoise(Noise),
    /// Ends every line with this line ending instead of the wire format's own line ending.
    LineEnds(LineEnd),
    /// Omits the blank line that ends the last event.
    NoFinalBlankLine,
    /// Compresses the body with gzip and sends the corresponding header, even if the client did not
    /// request compression.
    Gzip,
    /// Sends the bytes in chunks of this size, regardless of frame boundaries. A size of 0 is
    /// treated as 1.
    FixedSizeChunks(usize),
    /// Sends the bytes in chunks of 1 to `max_len` bytes. The same seed always produces the same
    /// chunk sizes.
    RandomSizeChunks {
        /// The seed for the random chunk sizes.
        seed: u64,
        /// The maximum chunk size in bytes. A size of 0 is treated as 1.
        max_len: usize,
    },
    /// Waits for this duration, measured by tokio's clock, before each chunk.
    DelayPerChunk(Duration),
}

/// The position in a body at which a fault occurs. If the body ends before this position, the fault
/// occurs at the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultPosition {
    /// After this number of body bytes, counted as they are sent.
    Bytes(usize),
    /// After this number of events. [`Noise`] is not counted. An answer that is not a stream
    /// contains no events.
    Events(usize),
}

/// Meaningless content that can be sent between the events of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Noise {
    /// Comments like those that gateways send to keep a connection open. On wires that use JSON
    /// lines, empty lines are sent instead of comments.
    Comments,
    /// The wire format's own keep-alive: `ping` on Anthropic, `keepalive` on Responses, an empty
    /// line on Ollama (which has no comments), and a comment on all other wires.
    Pings,
    /// Events of an unknown type. On the Chat Completions, Gemini and Ollama wires, whose events
    /// have no types, the server sends chunks that contain no choices, no candidates or no message.
    UnknownEvents,
    /// Blank lines between the events.
    BlankLines,
}

/// A line ending. An event stream may use any of the three line endings. `Cr` has no effect on
/// wires that use JSON lines.
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
