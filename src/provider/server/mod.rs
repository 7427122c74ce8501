//! The wires from the side that answers: requests read just enough to answer them, turns and errors
//! written as the vendor writes them.
//!
//! The `write` of each wire implements [`ServerWire`]. Nothing here does I/O or knows the time: ids,
//! times and signatures are handed in, and frames are given back as data.

mod error_body;
mod frame;
pub(super) mod openai_errors;
mod server_wire;
mod turn_writer;

#[cfg(test)]
mod tests;

pub(super) use error_body::{default_status, error_message, message_with_phrase};
pub(crate) use frame::{FrameFormat, FrameRole, ServerFrame};
pub(crate) use server_wire::ServerWire;
pub(super) use turn_writer::{BufferedCall, call_id_or_generated};
pub(crate) use turn_writer::{IssuedItem, TurnStart, TurnWriter, UnsupportedContent, WriterOutput};
