//! The server side of a wire format.

use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::provider::server::error_body::{default_status, retry_after};
use crate::provider::server::frame::{FrameFormat, ServerFrame};
use crate::provider::server::turn_writer::{TurnStart, TurnWriter};

/// Describes the server side of a wire format: which requests use the wire format, and how they are
/// answered. Paths include the query.
#[derive(Clone, Copy)]
pub(crate) struct ServerWire {
    /// The name that identifies the wire format in provider data.
    pub(crate) name: &'static str,
    /// The suffix that a request's path must have, not counting the query.
    pub(crate) path_suffix: &'static str,
    /// Returns the name of the requested model, given the request's path and body.
    pub(crate) model: for<'a> fn(&'a str, &'a Value) -> Option<&'a str>,
    /// Returns whether the body requests a streaming response.
    pub(crate) wants_stream: fn(&Value) -> bool,
    /// Returns the format of the streaming response, given the request's path.
    pub(crate) format: fn(&str) -> FrameFormat,
    /// Creates the writer for a turn.
    pub(crate) new_turn_writer: fn(&TurnStart<'_>) -> Box<dyn TurnWriter>,
    /// Returns the `n`th keep-alive frame, which has no content, or `None` if only the keep-alive
    /// bytes of the frame format are sent.
    pub(crate) ping: fn(usize) -> Option<ServerFrame>,
    /// Returns the body for an error response with this status.
    pub(crate) error_body: fn(&Error, u16) -> Value,
    /// Converts the body of an error response to the `n`th frame of a stream.
    pub(crate) error_frame: fn(&Value, usize) -> ServerFrame,
    /// Returns the HTTP status for errors of the given kind.
    pub(crate) status: fn(ErrorKind) -> u16,
    /// Returns the header that contains the retry delay.
    pub(crate) retry_after_header: fn(&Error) -> Option<(&'static str, String)>,
    /// The name of the header that contains the vendor's request id.
    pub(crate) request_id_header: Option<&'static str>,
}

impl ServerWire {
    /// Creates a description with the settings that most wire formats use. Responses are streams of
    /// server-sent events, and the request body contains the model and `stream`. Errors have the
    /// same format in a stream as in a response body.
    pub(crate) const fn new(
        name: &'static str,
        path_end: &'static str,
        turn: fn(&TurnStart<'_>) -> Box<dyn TurnWriter>,
        error_body: fn(&Error, u16) -> Value,
    ) -> Self {
        Self {
            name,
            path_suffix: path_end,
            model: |_, body| body["model"].as_str(),
            wants_stream: |body| body["stream"] == Value::Bool(true),
            format: |_| FrameFormat::EVENTS,
            new_turn_writer: turn,
            ping: |_| None,
            error_body,
            error_frame: |body, _| ServerFrame::from_event(None, body),
            status: default_status,
            retry_after_header: retry_after,
            request_id_header: None,
        }
    }

    /// Returns the error as the `n`th frame of a stream.
    pub(crate) fn stream_error_frame(&self, error: &Error, n: usize) -> ServerFrame {
        let body = (self.error_body)(error, (self.status)(error.kind()));
        (self.error_frame)(&body, n)
    }
}
