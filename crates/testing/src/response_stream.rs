//! The response to a request, before any faults are injected.

use bytes::Bytes;
use serde_json::Value;
use turnstream::provider::server::{Frame, Wire};

use crate::body_format::BodyFormat;
use crate::http::BodyPart;

/// A response before any faults are injected.
pub(super) struct StreamResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: ResponseBody,
}

pub(super) enum ResponseBody {
    /// A streamed body: the steps to perform, and the format of the frames.
    Stream(Vec<BodyStep>, BodyFormat),
    /// A body that is not a stream, such as a JSON document.
    Raw(Bytes),
}

/// A step in sending a streamed body: either bytes to send or another action.
#[derive(Debug)]
pub(super) enum BodyStep {
    Frame(Frame),
    /// Meaningless bytes, such as a comment, that the client must ignore.
    Noise(Bytes),
    /// A delay or the end of the body.
    Part(BodyPart),
}

impl StreamResponse {
    pub(super) fn new(status: u16, content_type: &str, body: ResponseBody) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, body }
    }

    /// Creates a response that consists of one JSON document.
    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self::new(
            status,
            "application/json; charset=utf-8",
            ResponseBody::Raw(body.to_string().into()),
        )
    }

    pub(super) fn with_request_id(mut self, wire: Wire, id: &str) -> Self {
        let header = wire.request_id_header().map(|name| (name.to_owned(), id.to_owned()));
        self.headers.extend(header);
        self
    }
}

/// Returns the number of frames in a stream.
pub(super) fn count_frames(steps: &[BodyStep]) -> usize {
    steps.iter().filter(|step| matches!(step, BodyStep::Frame(_))).count()
}
