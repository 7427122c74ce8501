//! What a server answers to one request.

use bytes::Bytes;

use crate::error::Error;
use crate::provider::{Reply, ReplyStep};
use crate::testing::fault::Fault;
use crate::testing::http::{BodyPart, HttpResponse};
use crate::testing::inject_faults::inject;
use crate::testing::response_stream::{BodyStep, ResponseBody, StreamResponse};
use crate::testing::signatures::Signatures;
use crate::testing::{ReceivedRequest, Wire, error_response, scripted_stream};

/// What a [`ModelServer`](crate::testing::ModelServer) answers to one request: a turn, a refusal,
/// or something else, and what goes wrong with it on the way.
///
/// A [`Reply`] and an `&str` are answers, and so is an [`Error`]: a refusal in the vendor's own
/// shape, with its status and its `retry-after`.
///
/// ```
/// use serde_json::json;
/// use turnstream::provider::Reply;
/// use turnstream::testing::{FaultPosition, Answer, LineEnd, Fault, Noise};
///
/// // What a model says.
/// Answer::reply("Hello!");
/// Answer::reply(Reply::new().think("Two files.").call("read", json!({ "path": "a.txt" })));
///
/// // What a vendor says instead.
/// Answer::error(429).with_header("retry-after-ms", "1500");
/// Answer::error(503).with_header("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT");
/// Answer::html_page(502);
/// // A JSON error under a status that tells of none.
/// Answer::error(500).with_status(200);
///
/// // What happens on the way.
/// Answer::reply("Hello!").with_fault(Fault::Stall(FaultPosition::Events(2)));
/// Answer::reply("Hello!").with_fault(Fault::InsertNoise(Noise::Pings)).with_fault(Fault::LineEnds(LineEnd::CrLf));
/// ```
#[derive(Clone, Debug)]
#[must_use = "an answer does nothing unless it is given to a server"]
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
    /// Anything at all.
    Raw {
        content_type: String,
        body: Bytes,
    },
}

impl Answer {
    /// A turn of the model.
    ///
    /// A reply that begins with an error that has a status is a refusal; any other error stands in
    /// the stream. What a reply says that the wire cannot say is answered with status 500 and a
    /// message that says so.
    pub fn reply(reply: impl Into<Reply>) -> Self {
        let moves = reply.into();
        match moves.initial_error() {
            Some(error) => Self::from_content(ResponseContent::Error(error)),
            None => Self::from_content(ResponseContent::Reply(moves)),
        }
    }

    /// A refusal by its status, with the words that vendors have for it.
    ///
    /// For words of your own, make the answer of an [`Error`].
    pub fn error(status: u16) -> Self {
        Self::from_content(ResponseContent::Error(error_response::error_for_status(status)))
    }

    /// A web page, as a gateway in front of the provider sends it.
    pub fn html_page(status: u16) -> Self {
        let page =
            format!("<html>\r\n<head><title>{status}</title></head>\r\n<body></body></html>\r\n");
        Self::raw("text/html", page).with_status(status)
    }

    /// These bytes, under status 200.
    ///
    /// ```
    /// use turnstream::testing::Answer;
    ///
    /// // One JSON document, though a stream was asked for.
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

    /// Answers under another status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds a header, written as it is. It replaces one of the same name that the answer has of
    /// itself, such as `content-type`.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Lets something go wrong.
    pub fn with_fault(mut self, mishap: Fault) -> Self {
        self.faults.push(mishap);
        self
    }

    /// The body on a wire as it is sent, up to where it ends or is broken off: for a test of a
    /// decoder, or to learn how many places there are to cut it.
    ///
    /// ```
    /// use turnstream::testing::{Answer, Wire};
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

    /// What is sent. `signatures` learns what was signed.
    pub(super) fn into_response(
        self,
        asked: &ReceivedRequest,
        signatures: &mut Signatures,
    ) -> HttpResponse {
        let mut said = match self.content {
            ResponseContent::Reply(reply) => {
                match scripted_stream::script_to_body_steps(reply.into_steps(), asked, signatures) {
                    Ok(steps) => stream(steps, asked),
                    Err(what) => error_response::server_error(asked.wire, &what),
                }
            }
            ResponseContent::Error(error) => error_response::error_response(asked.wire, &error),
            ResponseContent::Raw { content_type, body } => {
                StreamResponse::new(200, &content_type, ResponseBody::Raw(body))
            }
        };
        if self.faults.contains(&Fault::Gzip) {
            said.headers.push(("content-encoding".to_owned(), "gzip".to_owned()));
        }
        let replaced = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        said.headers.retain(|(name, _)| !replaced(name));
        said.headers.extend(self.headers);
        HttpResponse {
            status: self.status.unwrap_or(said.status),
            headers: said.headers,
            body: inject(said.body, &self.faults, asked.wire),
        }
    }

    /// Adds mishaps that happen to every answer of a server.
    pub(super) fn with_faults(mut self, mishaps: &[Fault]) -> Self {
        self.faults.extend_from_slice(mishaps);
        self
    }

    fn from_content(said: ResponseContent) -> Self {
        Self { content: said, status: None, headers: Vec::new(), faults: Vec::new() }
    }
}

fn stream(steps: Vec<BodyStep>, asked: &ReceivedRequest) -> StreamResponse {
    let server = asked.wire.server_wire();
    let format = (server.format)(&asked.http.path);
    StreamResponse::new(200, format.content_type, ResponseBody::Stream(steps, format))
        .with_request_id(server, &format!("req_{:04}", asked.index))
}

impl Reply {
    /// The error that the server answers with before it begins to stream.
    fn initial_error(&self) -> Option<Error> {
        match self.steps().first() {
            Some(ReplyStep::Error(error)) if error.status().is_some() => Some(error.clone()),
            _ => None,
        }
    }
}

impl<R: Into<Reply>> From<R> for Answer {
    fn from(reply: R) -> Self {
        Self::reply(reply)
    }
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        Self::from_content(ResponseContent::Error(error))
    }
}
