//! A server's answer to a request.

use bytes::Bytes;
use turnstream::error::Error;
use turnstream::provider::{Reply, ReplyStep};

use crate::body_format::BodyFormat;
use crate::fault::Fault;
use crate::http::{BodyPart, HttpResponse};
use crate::inject_faults::inject;
use crate::response_stream::{BodyStep, ResponseBody, StreamResponse};
use crate::signatures::Signatures;
use crate::{ReceivedRequest, Wire, error_response, scripted_stream};

/// An answer that a [`ModelServer`](crate::ModelServer) sends in response to a request. An
/// answer contains a turn, an error or a raw body, along with any faults to inject.
///
/// A [`Reply`] or a `&str` converts into an answer. An [`Error`] converts into an error response in
/// the vendor's format, with the same status and `retry-after` as the error.
///
/// ```
/// use serde_json::json;
/// use turnstream::provider::Reply;
/// use turnstream_testing::{FaultPosition, Answer, LineEnd, Fault, Noise};
///
/// // Turns of a model.
/// Answer::reply("Hello!");
/// Answer::reply(Reply::new().think("Two files.").call("read", json!({ "path": "a.txt" })));
///
/// // Error responses of a vendor.
/// Answer::error(429).with_header("retry-after-ms", "1500");
/// Answer::error(503).with_header("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT");
/// Answer::html_page(502);
/// // A JSON error with a success status.
/// Answer::error(500).with_status(200);
///
/// // Faults.
/// Answer::reply("Hello!").with_fault(Fault::Stall(FaultPosition::Events(2)));
/// Answer::reply("Hello!").with_fault(Fault::InsertNoise(Noise::Pings)).with_fault(Fault::LineEnds(LineEnd::CrLf));
/// ```
#[derive(Clone, Debug)]
#[must_use = "an answer does nothing unless it is passed to a server"]
pub struct Answer {
    content: ResponseContent,
    status: Option<u16>,
    headers: Vec<(String, String)>,
    faults: Vec<Fault>,
}

#[derive(Clone, Debug)]
enum ResponseContent {
    Reply(Reply),
    Error(Error),
    /// A raw body, which is sent unchanged.
    Raw {
        content_type: String,
        body: Bytes,
    },
}

impl Answer {
    /// Creates an answer that contains a turn from the model.
    ///
    /// If the reply starts with an error that has a status, the answer is an error response. An
    /// error without a status, or after the start of the reply, is sent within the stream. If the
    /// wire format cannot express a part of the reply, the server responds with status 500 and a
    /// message that names that part.
    pub fn reply(reply: impl Into<Reply>) -> Self {
        let reply = reply.into();
        Self::from_content(match initial_error(&reply) {
            Some(error) => ResponseContent::Error(error),
            None => ResponseContent::Reply(reply),
        })
    }

    /// Creates an error response with this status and a message like the messages that vendors
    /// send.
    ///
    /// To send a custom message, convert an [`Error`] into an answer.
    pub fn error(status: u16) -> Self {
        Self::from_content(ResponseContent::Error(error_response::error_for_status(status)))
    }

    /// Creates an answer that contains an HTML page, like an error page from a gateway in front of
    /// the provider.
    pub fn html_page(status: u16) -> Self {
        let page =
            format!("<html>\r\n<head><title>{status}</title></head>\r\n<body></body></html>\r\n");
        Self::raw("text/html", page).with_status(status)
    }

    /// Creates an answer with the given body and status 200.
    ///
    /// ```
    /// use turnstream_testing::Answer;
    ///
    /// // One JSON document instead of a stream.
    /// Answer::raw("application/json", r#"{"choices":[]}"#);
    /// // Events written by hand.
    /// Answer::raw("text/event-stream", "data: [DONE]\n\n");
    /// ```
    pub fn raw(content_type: &str, body: impl Into<Bytes>) -> Self {
        Self::from_content(ResponseContent::Raw {
            content_type: content_type.to_owned(),
            body: body.into(),
        })
    }

    /// Sets the answer's HTTP status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds a header, which is sent unchanged. If a default header, such as `content-type`, has the
    /// same name, the added header replaces it.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Injects a fault into the answer, in addition to the faults that it has.
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Encodes the answer's body in this wire format. If a fault interrupts the body, returns only
    /// the bytes before the interruption. Use this method to test a decoder, or to count the
    /// positions at which the body can be cut.
    ///
    /// ```
    /// use turnstream_testing::{Answer, Wire};
    ///
    /// let stream = Answer::reply("Hello!").to_bytes(Wire::Anthropic);
    /// assert!(stream.starts_with(b"event: message_start\ndata: {"));
    /// ```
    pub fn to_bytes(&self, wire: Wire) -> Vec<u8> {
        let response = self
            .clone()
            .into_response(&ReceivedRequest::for_wire(wire), &mut Signatures::default());
        let bytes = response.body.into_iter().map_while(|part| match part {
            BodyPart::Bytes(bytes) => Some(bytes),
            BodyPart::Delay(_) => Some(Bytes::new()),
            BodyPart::Stream(_)
            | BodyPart::Hang
            | BodyPart::Silence
            | BodyPart::Cut
            | BodyPart::Reset => None,
        });
        bytes.collect::<Vec<_>>().concat()
    }

    /// Converts the answer into a response, and records its signatures in `signatures`.
    pub(super) fn into_response(
        self,
        request: &ReceivedRequest,
        signatures: &mut Signatures,
    ) -> HttpResponse {
        let mut encoded = match self.content {
            ResponseContent::Reply(reply) => {
                match scripted_stream::script_to_body_steps(reply.into_steps(), request, signatures)
                {
                    Ok(steps) => stream(steps, request),
                    Err(what) => error_response::server_error(request.wire, &what),
                }
            }
            ResponseContent::Error(error) => error_response::error_response(request.wire, &error),
            ResponseContent::Raw { content_type, body } => {
                StreamResponse::new(200, &content_type, ResponseBody::Raw(body))
            }
        };
        if self.faults.contains(&Fault::Gzip) {
            encoded.headers.push(("content-encoding".to_owned(), "gzip".to_owned()));
        }
        let replaced = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        encoded.headers.retain(|(name, _)| !replaced(name));
        encoded.headers.extend(self.headers);
        HttpResponse {
            status: self.status.unwrap_or(encoded.status),
            headers: encoded.headers,
            body: inject(encoded.body, &self.faults, request.wire),
        }
    }

    /// Adds the faults that a server applies to all of its answers.
    pub(super) fn with_faults(mut self, faults: &[Fault]) -> Self {
        self.faults.extend_from_slice(faults);
        self
    }

    fn from_content(encoded: ResponseContent) -> Self {
        Self { content: encoded, status: None, headers: Vec::new(), faults: Vec::new() }
    }
}

fn stream(steps: Vec<BodyStep>, request: &ReceivedRequest) -> StreamResponse {
    let format = BodyFormat::new(request.wire, &request.http.path);
    StreamResponse::new(200, format.content_type(), ResponseBody::Stream(steps, format))
        .with_request_id(request.wire, &format!("req_{:04}", request.index))
}

/// Returns the error to send instead of a stream, if any.
fn initial_error(reply: &Reply) -> Option<Error> {
    match reply.clone().into_steps().into_iter().next() {
        Some(ReplyStep::Error(error)) if error.status().is_some() => Some(error),
        _ => None,
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::reply(reply)
    }
}

impl From<&str> for Answer {
    fn from(text: &str) -> Self {
        Self::reply(text)
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self::reply(text)
    }
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        Self::from_content(ResponseContent::Error(error))
    }
}
