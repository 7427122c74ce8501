//! A wire as a server speaks it.

use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::provider::server::error_body::{default_status, retry_after};
use crate::provider::server::frame::{FrameFormat, ServerFrame};
use crate::provider::server::turn_writer::{TurnStart, TurnWriter};

/// A wire as a server speaks it: which requests belong to it, and how they are answered. Paths are
/// as they stand in a request, with their query.
#[derive(Clone, Copy)]
pub(crate) struct ServerWire {
    /// The name of the wire in provider data.
    pub(crate) name: &'static str,
    /// How the path of a request ends, without its query.
    pub(crate) path_suffix: &'static str,
    /// The model that a request asks for, by its path and its body.
    pub(crate) model: for<'a> fn(&'a str, &'a Value) -> Option<&'a str>,
    /// Whether the body of a request asks for a stream.
    pub(crate) wants_stream: fn(&Value) -> bool,
    /// How the stream that answers a request is framed, by its path.
    pub(crate) format: fn(&str) -> FrameFormat,
    /// Begins a turn.
    pub(crate) new_turn_writer: fn(&TurnStart<'_>) -> Box<dyn TurnWriter>,
    /// A frame that keeps a stream open and says nothing, the `n`th of it. None if the wire has
    /// only what its format has.
    pub(crate) ping: fn(usize) -> Option<ServerFrame>,
    /// The body of an answer that is an error, under this status.
    pub(crate) error_body: fn(&Error, u16) -> Value,
    /// An error in a stream, by what its body would have been, as the `n`th frame.
    pub(crate) error_frame: fn(&Value, usize) -> ServerFrame,
    /// The status of an error that has none.
    pub(crate) status: fn(ErrorKind) -> u16,
    /// The header that tells how long to wait.
    pub(crate) retry_after_header: fn(&Error) -> Option<(&'static str, String)>,
    /// The header that carries the vendor's id of a request.
    pub(crate) request_id_header: Option<&'static str>,
}

impl ServerWire {
    /// A wire with what most have in common: server-sent events, the model and `stream` in the body,
    /// errors in a stream as in a body.
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

    /// An error in a stream, as the `n`th frame.
    pub(crate) fn stream_error_frame(&self, error: &Error, n: usize) -> ServerFrame {
        let body = (self.error_body)(error, (self.status)(error.kind()));
        (self.error_frame)(&body, n)
    }
}
