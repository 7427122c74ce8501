//! The server side of the wires: writes turns and errors as the vendors' servers send them.
//!
//! This module is the inverse of the decoders. A [`TurnWriter`] converts the pieces of a turn to
//! the [`Frame`]s of a streamed response, and a [`FrameFormat`] writes the frames to the response's
//! body. [`Wire::error_document`] and [`Wire::error_frame`] report errors before and within a
//! stream. The code performs no I/O and does not read the clock: ids, times and signatures are
//! arguments, and frames are returned as data.
//!
//! The crate `turnstream-testing` contains a server for tests that is made from these parts.
//!
//! ```
//! use turnstream::item::StopReason;
//! use turnstream::provider::server::{ContentDelta, TurnStart, TurnWriter, Wire};
//! use turnstream::{Error, Usage};
//!
//! # fn main() -> Result<(), Error> {
//! let wire = Wire::Anthropic;
//! let mut turn = TurnWriter::new(wire, TurnStart {
//!     id: "1",
//!     model: "my-model",
//!     created_at: 1_700_000_000,
//!     request: &serde_json::json!({ "stream": true }),
//!     usage: Usage::default(),
//!     signatures: &[],
//!     sign: Box::new(|_| None),
//! });
//! let words = ["Hello,", " world!"].map(|word| (0, ContentDelta::Text(word.to_owned())));
//! let mut frames = turn.write(words)?;
//! frames.extend(turn.stop(&StopReason::Stop, Usage::default())?);
//!
//! let format = wire.frame_format("/v1/messages");
//! let body: String = (0..).zip(&frames).map(|(n, frame)| format.encode(frame, n)).collect();
//! assert!(body.starts_with("event: message_start\ndata: {"));
//! assert!(body.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
//! # Ok(())
//! # }
//! ```

mod error_body;
mod frame;
pub(super) mod openai_errors;
mod server_wire;
mod text_template;
mod turn_writer;
mod wire;
mod wire_writer;

#[cfg(test)]
mod tests;

pub use crate::provider::codec::content_delta::{ContentDelta, SignatureTarget};
pub use frame::{Frame, FrameFormat, Issued};
pub use turn_writer::TurnWriter;
pub use wire::{ErrorDocument, Wire};
pub use wire_writer::TurnStart;

pub(super) use error_body::{default_status, error_message, message_with_phrase};
pub(super) use server_wire::ServerWire;
pub(super) use text_template::{NUMBER_MARK, TEXT_MARK, TextTemplate};
pub(super) use wire_writer::{
    BufferedCall, REFUSAL_WITHOUT_TEXT, SignFn, TextFrame, UnsupportedContent, WireWriter,
    WriterOutput, call_id_or_generated,
};
