//! The server side of the wires. This module reads the parts of requests that a response needs, and
//! writes turns and errors in the vendor's format.
//!
//! The module `server` of each wire implements [`ServerWire`]. The code in this module does no I/O
//! and has no clock. Ids, times and signatures are arguments, and frames are returned as data.

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
