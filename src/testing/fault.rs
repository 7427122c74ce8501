//! What may go wrong with an answer, as data.

use std::time::Duration;

use crate::error::Error;

/// One thing that goes wrong with an [`Answer`](crate::testing::Answer).
///
/// Several may be given, in any order: first what the wire says is changed, then how it is framed,
/// then how its bytes are sent. Nothing is left to chance but by a seed.
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
    /// The connection closes, without the end that HTTP has for a body.
    Cut(FaultPosition),
    /// The body ends as if this were all: the transport tells of no error.
    EndEarly(FaultPosition),
    /// Nothing more comes, and the connection stays open: until the client closes it.
    Stall(FaultPosition),
    /// The connection is reset. The client may lose bytes that it has not read yet.
    Reset(FaultPosition),
    /// An error stands in the stream, in the wire's own shape, and the body ends. On an answer
    /// that is no stream it does nothing.
    Error(FaultPosition, Error),
    /// The terminal marker never comes, nor what is behind it, and the body ends.
    NoTerminalMarker,
    /// The word behind the terminal marker never comes (`[DONE]`, `message_stop`), and the body
    /// ends. Does nothing on Responses, Gemini and Ollama, whose terminal marker is their last word.
    NoDoneMarker,
    /// This comes before every event.
    InsertNoise(Noise),
    /// The lines end so, whatever the wire's own line ends are.
    LineEnds(LineEnd),
    /// The blank line that ends the last event never comes.
    NoFinalBlankLine,
    /// The body is packed with gzip, and says so, though nobody asked for it.
    Gzip,
    /// The bytes come in pieces of this many, whatever frames they belong to; 0 counts as 1.
    FixedSizeChunks(usize),
    /// The bytes come in pieces of 1 up to `most` bytes. The same seed gives the same pieces.
    RandomSizeChunks {
        /// Where chance begins.
        seed: u64,
        /// The most bytes in one piece; 0 counts as 1.
        max_len: usize,
    },
    /// So long a wait before each piece, by the clock of tokio.
    DelayPerChunk(Duration),
}

/// Where in a body something happens. If the body is shorter, it happens at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultPosition {
    /// Behind so many bytes of the body as it is sent.
    Bytes(usize),
    /// Behind so many events of the wire. Those of [`Noise`] are not counted. An answer that is
    /// no stream has none.
    Events(usize),
}

/// What may stand between the events of a stream, and means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Noise {
    /// Comments, as gateways send them to keep a connection open; empty lines among JSON lines.
    Comments,
    /// The wire's own sign of life: `ping` on Anthropic, `keepalive` on Responses, comments on
    /// the others, and an empty line on Ollama, which has no comments.
    Pings,
    /// Events of an unknown type. On the chat wire, Gemini and Ollama, whose events have no
    /// type, chunks without choices, candidates or a message.
    UnknownEvents,
    /// Blank lines.
    BlankLines,
}

/// How a line ends. All three are lawful in a stream of events; among JSON lines, `Cr` changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineEnd {
    /// `\n`
    Lf,
    /// `\r\n`
    CrLf,
    /// `\r`
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
