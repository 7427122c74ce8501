//! Splits the bytes of a response into frames.
//!
//! | framing | used by |
//! |---|---|
//! | [`FrameReader`], for server-sent events | most vendors |
//! | [`NdJson`] | Ollama |
//!
//! The caller feeds the chunks of a body to a reader, which returns frames. A reader performs no
//! I/O, spawns no tasks and never waits; when it returns `None`, it needs the next chunk.
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

mod nd_json;

use bytes::Bytes;

pub use nd_json::NdJson;

pub use crate::sse::{Frame, FrameReader};

use crate::error::{Error, ErrorKind};

/// The maximum size of a frame, in bytes.
const MAX_FRAME_BYTES: usize = 64 << 20;

/// Splits the bytes of a response into frames.
///
/// After an error, an implementation returns only `None`.
pub trait Framing {
    /// The media type to send in the request's `accept` header.
    const MEDIA_TYPE: &'static str;

    /// Passes the next chunk of the body to the reader. A chunk may end at any byte. Then call
    /// [`next_frame`](Self::next_frame) until it returns `None`.
    fn feed(&mut self, chunk: Bytes);

    /// Returns the next frame, or `None` if the reader needs another chunk.
    ///
    /// # Errors
    ///
    /// Returns a [`TooLarge`](ErrorKind::TooLarge) error for a frame that exceeds the reader's size
    /// limit, and a [`Protocol`](ErrorKind::Protocol) error for bytes that do not form a valid
    /// frame.
    fn next_frame(&mut self) -> Option<Result<Frame<'_>, Error>>;

    /// Returns the next remaining frame after the body has ended. Call this method repeatedly until
    /// the result is `None`. The last frame may be incomplete.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`next_frame`](Self::next_frame).
    fn finish(&mut self) -> Option<Result<Frame<'_>, Error>> {
        self.next_frame()
    }

    /// Detects whether a response is in a format other than the expected framing. The result
    /// depends on the first non-blank byte, not on the `content-type` header. Returns a description
    /// of the format for use in an error message, such as "a web page", or `None` if the response
    /// may use the expected framing.
    fn detect_other_format(first: u8) -> Option<&'static str> {
        match first {
            b'{' | b'[' => Some("one JSON document"),
            b'<' => Some("a web page"),
            _ => None,
        }
    }
}

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
