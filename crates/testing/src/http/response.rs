//! A handler's response and its encoding, without any I/O.

use std::time::Duration;

use bytes::Bytes;

use crate::http::body_stream::BodyStream;
use crate::http::request::HttpRequest;

/// A response for the server to send, including any network faults.
///
/// The head is sent immediately, unless the first part is [`BodyPart::Silence`]. The body parts
/// follow in order. After the last part, the server sends the final chunk and keeps the connection
/// open for the next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The HTTP status code, such as 200.
    pub status: u16,
    /// The response's headers, which are sent unchanged except as described below.
    ///
    /// The server itself determines the framing of the body, so it omits any `content-length` and
    /// `transfer-encoding` headers. You can therefore pass all headers of a recorded response. A
    /// `connection` header has an effect only if its value is `close`.
    pub headers: Vec<(String, String)>,
    /// The parts of the body. The body follows the head and is always sent in chunks.
    ///
    /// If HTTP does not allow a body (in a response to `HEAD`, or with status 204 or 304), the
    /// bytes are omitted, but all other parts still have an effect.
    pub body: Vec<BodyPart>,
}

/// A part of a response body: bytes, a delay, or a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyPart {
    /// Sends the bytes as one HTTP chunk, in a single write. An empty part sends nothing.
    Bytes(Bytes),
    /// Waits for this duration, measured by tokio's clock. If the clock is paused, the delay ends
    /// as soon as all tasks are idle.
    Delay(Duration),
    /// Sends each item of a stream as an HTTP chunk, until the stream ends.
    Stream(BodyStream),
    /// Waits until the client closes the connection or the server is dropped.
    Hang,
    /// Like [`Hang`](Self::Hang), waits until the client closes the connection or the server is
    /// dropped. If `Silence` is the first part, the head is not sent either, so the client receives
    /// nothing at all.
    Silence,
    /// Closes the connection immediately, without sending the final chunk.
    Cut,
    /// Resets the connection immediately. Bytes that the client has not read yet may be lost.
    Reset,
}

impl HttpResponse {
    /// Creates a response with a plain-text body, sent as a single part.
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), "text/plain; charset=utf-8".into())],
            body: vec![BodyPart::Bytes(text.into().into())],
        }
    }
}

/// The properties of a response's encoding that the handler does not determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Framing {
    pub(super) body: BodyFraming,
    pub(super) after_response: AfterResponse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    Chunked,
    Absent,
}

/// Whether the connection stays open after a complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterResponse {
    KeepAlive,
    Close,
}

impl Framing {
    pub(super) fn for_response(request: &HttpRequest, response: &HttpResponse) -> Self {
        let body = match (request.method.as_str(), response.status) {
            ("HEAD", _) | (_, 100..=199 | 204 | 304) => BodyFraming::Absent,
            _ => BodyFraming::Chunked,
        };
        let then =
            if has_connection_close(&request.headers) || has_connection_close(&response.headers) {
                AfterResponse::Close
            } else {
                AfterResponse::KeepAlive
            };
        Self { body, after_response: then }
    }
}

fn has_connection_close(headers: &[(String, String)]) -> bool {
    headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("connection"))
        .flat_map(|(_, value)| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("close"))
}

/// The last chunk of a chunked body (RFC 9112, 7.1): `last-chunk`, an empty `trailer-section`, and
/// the end.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

pub(super) fn encode_head(response: &HttpResponse, framing: Framing) -> Vec<u8> {
    // The space before the reason phrase is required even if the phrase is omitted.
    let mut head = format!("HTTP/1.1 {} \r\n", response.status);
    let ours = ["content-length", "transfer-encoding", "connection"];
    for (name, value) in &response.headers {
        if !ours.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
            head.extend([name, ": ", value, "\r\n"]);
        }
    }
    match framing.body {
        BodyFraming::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
        BodyFraming::Absent => {}
    }
    match framing.after_response {
        AfterResponse::Close => head.push_str("connection: close\r\n"),
        AfterResponse::KeepAlive => {}
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// Encodes bytes as one chunk. The data must not be empty, since an empty chunk would be parsed as
/// [`LAST_CHUNK`].
pub(super) fn encode_chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "each is created where it is checked")]
    fn check_head(request: HttpRequest, response: HttpResponse, expected: &str) {
        let framing = Framing::for_response(&request, &response);
        let head = String::from_utf8(encode_head(&response, framing)).unwrap();
        assert_eq!(head, expected);
    }

    fn response(status: u16, headers: &[(&str, &str)]) -> HttpResponse {
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        HttpResponse { status, headers: headers.iter().map(own).collect(), body: vec![] }
    }

    #[test]
    fn scripted_framing_headers_are_replaced_by_the_server() {
        check_head(
            HttpRequest::default(),
            response(200, &[("Content-Length", "3"), ("x", "y"), ("Connection", "keep-alive")]),
            "HTTP/1.1 200 \r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n",
        );
    }

    #[test]
    fn either_side_may_ask_for_the_connection_to_close() {
        let closing = "HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
        let close = ("connection".to_owned(), "TE, Close".to_owned());
        let asking = HttpRequest { headers: vec![close], ..HttpRequest::default() };
        check_head(asking, response(200, &[]), closing);
        check_head(HttpRequest::default(), response(200, &[("Connection", "close")]), closing);
    }

    #[test]
    fn statuses_without_a_body_send_no_framing_headers() {
        check_head(HttpRequest::default(), response(204, &[]), "HTTP/1.1 204 \r\n\r\n");
    }

    #[test]
    fn a_chunk_length_is_hexadecimal() {
        assert_eq!(encode_chunk(b"0123456789"), b"a\r\n0123456789\r\n");
    }
}
