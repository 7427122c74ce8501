//! From the bytes of an answer to its frames: how a wire says where one event ends.
//!
//! | framing | used by |
//! |---|---|
//! | [`ServerSentEvents`] | most vendors |
//! | [`NdJson`] | Ollama |
//! | [`AmazonEventStream`] | Amazon Bedrock's Converse, for a wire of your own |
//!
//! A reader is fed the chunks of a body and returns its frames. It does no I/O, spawns nothing and
//! never waits: when it returns `None`, it needs the next chunk.
//!
//! ```
//! use turnstream::framing::{Framing, NdJson};
//!
//! let mut reader = NdJson::default();
//! reader.feed("{\"a\":1}\n{\"a\"".into());
//! assert_eq!(reader.next_frame().unwrap()?.data, "{\"a\":1}");
//! assert!(reader.next_frame().is_none());
//! reader.feed(":2}\n".into());
//! assert_eq!(reader.next_frame().unwrap()?.data, "{\"a\":2}");
//! # Ok::<(), turnstream::Error>(())
//! ```

mod amazon_event_stream;
mod nd_json;

use bytes::Bytes;

pub use amazon_event_stream::AmazonEventStream;
pub use nd_json::NdJson;

pub use crate::sse::Frame;

use crate::error::{Error, ErrorKind};
use crate::sse::FrameReader;

/// The largest frame, in bytes.
const MAX_FRAME_BYTES: usize = 64 << 20;

/// Cuts the bytes of an answer into frames.
///
/// After an error a reader returns `None` for ever.
pub trait Framing {
    /// The media type that a request asks for in its `accept` header.
    const MEDIA_TYPE: &'static str;

    /// Takes the next chunk of the body.
    fn feed(&mut self, chunk: Bytes);

    /// Lends the next frame; `None` until more chunks are fed.
    ///
    /// # Errors
    ///
    /// [`TooLarge`](ErrorKind::TooLarge) for a frame beyond the reader's limit, and
    /// [`Protocol`](ErrorKind::Protocol) for bytes that are not frames.
    fn next_frame(&mut self) -> Option<Result<Frame<'_>, Error>>;

    /// Lends the next frame that is left when the body has ended; call it until it returns `None`. The end may
    /// have cut off the last one.
    ///
    /// # Errors
    ///
    /// As [`next_frame`](Self::next_frame).
    fn finish(&mut self) -> Option<Result<Frame<'_>, Error>> {
        self.next_frame()
    }

    /// Returns what an answer is instead if its first byte, white space left out, shows that it is
    /// not in this framing, whatever its `content-type` is. The text is part of an error's message,
    /// for example "a web page".
    fn detect_other_format(first: u8) -> Option<&'static str> {
        match first {
            b'{' | b'[' => Some("one JSON document"),
            b'<' => Some("a web page"),
            _ => None,
        }
    }
}

/// Server-sent events, <https://html.spec.whatwg.org/multipage/server-sent-events.html>.
pub use crate::sse::FrameReader as ServerSentEvents;

impl Framing for FrameReader {
    const MEDIA_TYPE: &'static str = "text/event-stream";

    fn feed(&mut self, chunk: Bytes) {
        self.feed(chunk);
    }

    fn next_frame(&mut self) -> Option<Result<Frame<'_>, Error>> {
        self.next_frame().map(|frame| frame.map_err(frame_too_large_error))
    }

    fn finish(&mut self) -> Option<Result<Frame<'_>, Error>> {
        self.finish().map(|frame| frame.map_err(frame_too_large_error))
    }
}

#[cold]
fn frame_too_large_error(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::TooLarge, error.to_string()).with_source(error)
}
