//! The server side of a wire, as data and functions.

use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::provider::server::error_body::{default_status, retry_after};
use crate::provider::server::frame::{Frame, FrameFormat};
use crate::provider::server::wire_writer::{TurnStart, WireWriter};

/// Describes the server side of a wire. Paths include the query.
#[derive(Clone, Copy)]
pub(in crate::provider) struct ServerWire {
    /// The name that identifies the wire in provider data.
    pub(in crate::provider) name: &'static str,
    /// Returns the format of the streamed response, given the request's path.
    pub(in crate::provider) format: fn(&str) -> FrameFormat,
    /// Creates the writer for a turn.
    pub(in crate::provider) new_writer: fn(TurnStart<'_>) -> Box<dyn WireWriter>,
    /// Returns the `n`th keep-alive frame, which has no content, or `None` if the wire has none.
    pub(in crate::provider) ping: fn(usize) -> Option<Frame>,
    /// Returns the body for an error response with this status.
    pub(in crate::provider) error_body: fn(&Error, u16) -> Value,
    /// Converts the body of an error response to the `n`th frame of a stream.
    pub(in crate::provider) error_frame: fn(&Value, usize) -> Frame,
    /// Returns the HTTP status for errors of the given kind.
    pub(in crate::provider) status: fn(ErrorKind) -> u16,
    /// Returns the header that contains the retry delay.
    pub(in crate::provider) retry_after_header: fn(&Error) -> Option<(&'static str, String)>,
    /// The name of the header that contains the vendor's request id.
    pub(in crate::provider) request_id_header: Option<&'static str>,
}

impl ServerWire {
    /// Creates a description with the settings that most wires use. Responses are streams of
    /// server-sent events. Errors have the same format in a stream as in a response body.
    pub(in crate::provider) const fn new(
        name: &'static str,
        new_writer: fn(TurnStart<'_>) -> Box<dyn WireWriter>,
        error_body: fn(&Error, u16) -> Value,
    ) -> Self {
        Self {
            name,
            format: |_| FrameFormat::EVENTS,
            new_writer,
            ping: |_| None,
            error_body,
            error_frame: |body, _| Frame::new(None, body),
            status: default_status,
            retry_after_header: retry_after,
            request_id_header: None,
        }
    }
}
