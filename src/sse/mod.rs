//! Splits the bytes of an HTTP body into server-sent event frames, and writes such frames.
//!
//! The body arrives in chunks; a frame consists of the lines up to a blank line. A [`FrameReader`]
//! is fed the chunks and returns frames. The reader performs no I/O, spawns no tasks and never
//! waits; when it returns `None`, it needs the next chunk.
//!
//! Frames with at most one `event:` line and one `data:` line, which model providers send, are
//! borrowed from the chunk. The `eventsource-stream` crate parses all other frames.
//!
//! ```
//! # use turnstream::sse::FrameReader;
//! let mut reader = FrameReader::new();
//! let mut seen = Vec::new();
//! for chunk in ["event: delta\nda", "ta: {\"text\":\"hi\"}\n\ndata: [DONE]\n\n"] {
//!     reader.feed(chunk.into());
//!     while let Some(frame) = reader.next_frame() {
//!         let frame = frame?;
//!         seen.push(format!("{}: {}", frame.event, frame.data));
//!     }
//! }
//! assert_eq!(seen, ["delta: {\"text\":\"hi\"}", "message: [DONE]"]);
//! # Ok::<(), turnstream::sse::FrameTooLarge>(())
//! ```

mod byte_order_mark;
mod frame;
mod frame_reader;
mod line_separators;
mod write_frame;

#[cfg(test)]
mod tests;

pub use frame::{Frame, FrameTooLarge};
pub use frame_reader::FrameReader;
pub(crate) use line_separators::escape_line_separators;
pub use write_frame::write_frame;
