//! Cuts the bytes of an HTTP body into frames of Server-Sent Events, and writes such frames.
//!
//! A body is bytes in chunks; a frame is the lines up to a blank one. [`FrameReader`] is given the
//! chunks and asked for frames. It does no I/O, spawns nothing and never waits: when it gives
//! `None`, it wants the next chunk.
//!
//! A frame of at most one `event:` and one `data:` line, which is what model providers send, is
//! lent out in place. Whatever else the wire may hold is read by the crate `eventsource-stream`.
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
mod write_frame;

#[cfg(test)]
mod tests;

pub use frame::{Frame, FrameTooLarge};
pub use frame_reader::FrameReader;
pub use write_frame::write_frame;
