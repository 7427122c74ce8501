//! Encodes the messages that the server sends to the client.

use bytes::Bytes;
use serde_json::Value;

/// The size of the chunks in which padding is sent, in bytes.
const PIECE_BYTES: u64 = 64 * 1024;

/// A message or raw bytes to send to the client.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outgoing {
    Message(Value),
    /// Bytes to send as one message, even if they are invalid.
    Raw(Bytes),
    /// A message with long padding in the middle, which is never held in memory as a whole.
    Padded {
        before: String,
        padding: u64,
        after: String,
        /// Whether the message ends, so that another message can follow.
        ends: bool,
    },
}

/// How messages are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageFraming {
    /// Each message is a line.
    Line,
    /// Each message is an event in a stream of server-sent events.
    Sse,
    /// The message is a JSON document.
    Document,
}

impl Outgoing {
    /// Returns the message's bytes in chunks that are produced lazily.
    pub(super) fn pieces(self, framing: MessageFraming) -> Box<dyn Iterator<Item = Bytes> + Send> {
        let (start, end) = match framing {
            MessageFraming::Line => ("", "\n"),
            MessageFraming::Sse => ("event: message\ndata: ", "\n\n"),
            MessageFraming::Document => ("", ""),
        };
        match self {
            Self::Message(message) => {
                Box::new([Bytes::from(format!("{start}{message}{end}"))].into_iter())
            }
            Self::Raw(bytes) => Box::new(
                [Bytes::from([start.as_bytes(), &bytes, end.as_bytes()].concat())].into_iter(),
            ),
            Self::Padded { before, padding, after, ends } => {
                let piece = Bytes::from(vec![b'a'; usize::try_from(PIECE_BYTES).unwrap_or(1)]);
                let whole = (0..padding / PIECE_BYTES).map({
                    let piece = piece.clone();
                    move |_| piece.clone()
                });
                // The remainder is smaller than a chunk.
                let rest = piece.slice(..usize::try_from(padding % PIECE_BYTES).unwrap_or(0));
                let end = if ends { end } else { "" };
                let first = [Bytes::from(format!("{start}{before}"))].into_iter();
                Box::new(first.chain(whole).chain([rest, Bytes::from(format!("{after}{end}"))]))
            }
        }
    }
}
