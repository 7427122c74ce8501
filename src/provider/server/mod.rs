//! Implements the server side of the wire formats. This module reads the parts of a request that
//! are needed for a response, and writes turns and errors in the vendor's format.
//!
//! The `server` module of each wire format defines a [`ServerWire`]. The code in this module
//! performs no I/O and does not read the clock. Ids, times and signatures are passed as arguments,
//! and frames are returned as data.

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
pub(super) use turn_writer::{BufferedCall, CREATED_AT, CREATED_AT_DATE, call_id_or_generated};
pub(crate) use turn_writer::{IssuedItem, TurnStart, TurnWriter, UnsupportedContent, WriterOutput};
