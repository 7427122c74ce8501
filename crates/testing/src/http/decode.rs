//! Decodes requests from the bytes received on a connection, without any I/O.

use std::mem;

use bytes::{Buf, Bytes, BytesMut};

use crate::http::request::HttpRequest;

/// The maximum combined length of a request line and its headers, in bytes.
pub(super) const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The maximum number of headers in a request.
const MAX_HEADERS: usize = 128;

/// The maximum length of a request body, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// The reason why the received bytes are not a supported request. The connection is closed after a
/// bad request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadRequest(pub(super) &'static str);

/// The outcome of decoding the bytes received so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// The request is not complete, so more bytes are needed.
    NeedsBytes,
    /// The client is waiting for `100 Continue` before it sends the body. The decoder returns this
    /// value only once per request.
    NeedsContinue,
    /// A complete request. The buffer may already contain bytes of the next request.
    Request(HttpRequest),
}

/// Decodes the requests on a connection, one after another.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The bytes that have been received but not decoded yet. The code that reads from the socket
    /// appends to this buffer.
    pub(super) buffer: BytesMut,
    expects: Expects,
    /// The request that is being decoded.
    request: HttpRequest,
    /// The body that is being decoded, if it is chunked.
    chunked_body: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expects {
    Head,
    Body { length: usize },
    ChunkSize,
    Chunk { length: usize },
    Trailer,
}

impl Decoder {
    pub(super) fn new(connection: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            expects: Expects::Head,
            request: HttpRequest { connection, ..HttpRequest::default() },
            chunked_body: BytesMut::new(),
        }
    }

    /// Returns whether the connection could end now without truncating a request.
    pub(super) fn is_between_requests(&self) -> bool {
        self.expects == Expects::Head && self.buffer.is_empty()
    }

    /// Decodes the buffered bytes until the request is complete or more bytes are needed.
    pub(super) fn decode(&mut self) -> Result<Decoded, BadRequest> {
        loop {
            match self.expects {
                Expects::Head => {
                    if self.decode_head()?.is_none() {
                        return Ok(Decoded::NeedsBytes);
                    }
                    self.expects = body_framing(&self.request)?;
                    if self.client_expects_continue() {
                        return Ok(Decoded::NeedsContinue);
                    }
                }
                Expects::Body { length } => {
                    if self.buffer.len() < length {
                        return Ok(Decoded::NeedsBytes);
                    }
                    let body = self.buffer.split_to(length).freeze();
                    return Ok(Decoded::Request(self.finish_request(body)));
                }
                Expects::ChunkSize => {
                    let parsed = httparse::parse_chunk_size(&self.buffer);
                    let parsed = parsed.map_err(|_| BadRequest("a chunk size is not a number"))?;
                    let Some((taken, size)) = self.parsed_if_complete(parsed)? else {
                        return Ok(Decoded::NeedsBytes);
                    };
                    self.buffer.advance(taken);
                    self.expects = match usize::try_from(size).unwrap_or(usize::MAX) {
                        0 => Expects::Trailer,
                        length if length > MAX_BODY_BYTES - self.chunked_body.len() => {
                            return Err(BODY_TOO_LARGE);
                        }
                        length => Expects::Chunk { length },
                    };
                }
                Expects::Chunk { length } => {
                    if self.buffer.len() < length + 2 {
                        return Ok(Decoded::NeedsBytes);
                    }
                    let chunk = self.buffer.split_to(length + 2);
                    let Some(data) = chunk.strip_suffix(b"\r\n") else {
                        return Err(BadRequest("a chunk is longer than its declared size"));
                    };
                    self.chunked_body.extend_from_slice(data);
                    self.expects = Expects::ChunkSize;
                }
                Expects::Trailer => {
                    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
                    let parsed = httparse::parse_headers(&self.buffer, &mut headers);
                    let Some((taken, _)) =
                        self.parsed_if_complete(parsed.map_err(bad_head_error)?)?
                    else {
                        return Ok(Decoded::NeedsBytes);
                    };
                    self.buffer.advance(taken);
                    let body = self.chunked_body.split().freeze();
                    return Ok(Decoded::Request(self.finish_request(body)));
                }
            }
        }
    }

    /// Parses the request line and the headers, and removes them from the buffer. Returns `None` if
    /// the headers are not complete yet.
    fn decode_head(&mut self) -> Result<Option<()>, BadRequest> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut head = httparse::Request::new(&mut headers);
        let parsed = head.parse(&self.buffer).map_err(bad_head_error)?;
        let Some(taken) = self.parsed_if_complete(parsed)? else { return Ok(None) };
        let (Some(method), Some(path), Some(1)) = (head.method, head.path, head.version) else {
            return Err(NOT_HTTP_1_1);
        };
        (self.request.method, self.request.path) = (method.to_owned(), path.to_owned());
        for header in head.headers.iter() {
            let value = str::from_utf8(header.value);
            let value = value.map_err(|_| BadRequest("the head is not valid UTF-8"))?;
            self.request.headers.push((header.name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        self.buffer.advance(taken);
        Ok(Some(()))
    }

    /// Returns the parsed value if parsing is complete. Returns an error if the head is incomplete
    /// and already exceeds its size limit.
    fn parsed_if_complete<T>(&self, parsed: httparse::Status<T>) -> Result<Option<T>, BadRequest> {
        match parsed {
            httparse::Status::Complete(whole) => Ok(Some(whole)),
            httparse::Status::Partial if self.buffer.len() > MAX_HEAD_BYTES => Err(HEAD_TOO_LARGE),
            httparse::Status::Partial => Ok(None),
        }
    }

    fn client_expects_continue(&self) -> bool {
        let expects = self.request.header("expect");
        expects.is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
            && self.expects != (Expects::Body { length: 0 })
            && self.buffer.is_empty()
    }

    fn finish_request(&mut self, body: Bytes) -> HttpRequest {
        self.expects = Expects::Head;
        let next = HttpRequest { connection: self.request.connection, ..HttpRequest::default() };
        HttpRequest { body, ..mem::replace(&mut self.request, next) }
    }
}

const BODY_TOO_LARGE: BadRequest = BadRequest("the body is too large");

const HEAD_TOO_LARGE: BadRequest = BadRequest("the head is too large");
const NOT_HTTP_1_1: BadRequest = BadRequest("the request line is not one of HTTP/1.1");

fn bad_head_error(error: httparse::Error) -> BadRequest {
    match error {
        httparse::Error::TooManyHeaders => HEAD_TOO_LARGE,
        httparse::Error::HeaderName => BadRequest("the name of a header is invalid"),
        httparse::Error::HeaderValue | httparse::Error::NewLine => {
            BadRequest("the head has a control character")
        }
        httparse::Error::Token | httparse::Error::Version | httparse::Error::Status => NOT_HTTP_1_1,
    }
}

/// Determines from a request's head how its body is framed.
fn body_framing(request: &HttpRequest) -> Result<Expects, BadRequest> {
    let values = |wanted: &'static str| {
        let named = move |(name, _): &&(String, String)| name == wanted;
        request.headers.iter().filter(named).map(|(_, value)| value)
    };
    let mut encodings = values("transfer-encoding");
    let mut lengths = values("content-length");
    match (encodings.next(), lengths.next()) {
        (None, None) => Ok(Expects::Body { length: 0 }),
        (None, Some(length)) => {
            if lengths.any(|other| other != length) {
                return Err(BadRequest("two content lengths disagree"));
            }
            match parse_length(length) {
                None => Err(BadRequest("the content length is not a number")),
                Some(length) if length > MAX_BODY_BYTES => Err(BODY_TOO_LARGE),
                Some(length) => Ok(Expects::Body { length }),
            }
        }
        (Some(encoding), None) => {
            if !encoding.eq_ignore_ascii_case("chunked") || encodings.next().is_some() {
                return Err(BadRequest("the only transfer encoding known is chunked"));
            }
            Ok(Expects::ChunkSize)
        }
        (Some(_), Some(_)) => Err(BadRequest("both a content length and a transfer encoding")),
    }
}

/// Parses a number that consists only of digits. Unlike `parse`, this function does not accept a
/// sign. If the number is too large for a `usize`, returns `usize::MAX`, which exceeds every limit.
fn parse_length(digits: &str) -> Option<usize> {
    let lawful = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    lawful.then(|| digits.parse().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Decoded, BadRequest> {
        let mut decoder = Decoder::new(0);
        decoder.buffer.extend_from_slice(bytes);
        decoder.decode()
    }

    fn check_bad(bytes: &[u8], reason: &'static str) {
        assert_eq!(decode(bytes), Err(BadRequest(reason)));
    }

    const CHUNKED: &[u8] =
        b"\r\nPOST /a?b HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nX-Y:\t z \r\n\r\n\
        3;note=x\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n";

    #[test]
    fn a_request_is_decoded_for_any_split_of_the_bytes() {
        for cut in 0..CHUNKED.len() {
            let mut decoder = Decoder::new(7);
            decoder.buffer.extend_from_slice(&CHUNKED[..cut]);
            assert_eq!(decoder.decode(), Ok(Decoded::NeedsBytes), "cut at {cut}");
            decoder.buffer.extend_from_slice(&CHUNKED[cut..]);
            let Ok(Decoded::Request(request)) = decoder.decode() else {
                panic!("no request when cut at {cut}");
            };
            assert_eq!((&*request.method, &*request.path), ("POST", "/a?b"));
            assert_eq!(request.header("X-y"), Some("z"));
            assert_eq!(request.body, "abc0123456789");
            assert_eq!(request.connection, 7);
            assert!(decoder.is_between_requests());
        }
    }

    #[test]
    fn bytes_after_a_request_are_the_next_one() {
        let mut decoder = Decoder::new(0);
        let two = b"PUT /1 HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiGET /2 HTTP/1.1\r\n\r\n";
        decoder.buffer.extend_from_slice(two);
        for (path, body) in [("/1", "hi"), ("/2", "")] {
            let Ok(Decoded::Request(request)) = decoder.decode() else {
                panic!("no request {path}");
            };
            assert_eq!((&*request.path, &*request.body), (path, body.as_bytes()));
        }
        assert_eq!(decoder.decode(), Ok(Decoded::NeedsBytes));
    }

    #[test]
    fn continue_is_needed_once_and_only_before_a_body() {
        let mut decoder = Decoder::new(0);
        let head = b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        decoder.buffer.extend_from_slice(head);
        assert_eq!(decoder.decode(), Ok(Decoded::NeedsContinue));
        assert_eq!(decoder.decode(), Ok(Decoded::NeedsBytes));

        let without_body = decode(b"GET / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n");
        assert!(matches!(without_body, Ok(Decoded::Request(_))));
    }

    #[test]
    fn non_http_bytes_are_rejected_before_the_line_ends() {
        check_bad(b"\x16\x03\x01", "the request line is not one of HTTP/1.1");
    }

    #[test]
    fn malformed_requests_are_refused_with_a_reason() {
        let head = |rest: &str| format!("POST / HTTP/1.1\r\n{rest}\r\n\r\n").into_bytes();
        for line in ["hello", "GET /", "GET / HTTP/1.0", "GET / x HTTP/1.1", "G@T / HTTP/1.1"] {
            let line = format!("{line}\r\n\r\n");
            check_bad(line.as_bytes(), "the request line is not one of HTTP/1.1");
        }
        check_bad(&head("no colon"), "the name of a header is invalid");
        check_bad(&head("name : value"), "the name of a header is invalid");
        check_bad(&head("a: 1\rb: 2"), "the head has a control character");
        check_bad(&head("content-length: +1"), "the content length is not a number");
        check_bad(&head("content-length: 1\r\ncontent-length: 2"), "two content lengths disagree");
        check_bad(
            &head("content-length: 1\r\ntransfer-encoding: chunked"),
            "both a content length and a transfer encoding",
        );
        check_bad(&head("transfer-encoding: gzip"), "the only transfer encoding known is chunked");
        let chunked = |rest: &str| [head("transfer-encoding: chunked"), rest.into()].concat();
        check_bad(&chunked("+3\r\n"), "a chunk size is not a number");
        check_bad(&chunked("2\r\nabcd"), "a chunk is longer than its declared size");
    }

    #[test]
    fn heads_and_bodies_over_their_limits_are_refused() {
        let endless_line = vec![b'a'; MAX_HEAD_BYTES + 1];
        check_bad(&endless_line, "the head is too large");
        let endless_headers =
            format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(MAX_HEAD_BYTES / 6));
        check_bad(endless_headers.as_bytes(), "the head is too large");

        let over = MAX_BODY_BYTES + 1;
        let sized = format!("PUT / HTTP/1.1\r\ncontent-length: {over}\r\n\r\n");
        check_bad(sized.as_bytes(), "the body is too large");
        let chunked = "PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        let second_too_many = format!("{chunked}1\r\na\r\n{MAX_BODY_BYTES:x}\r\n");
        check_bad(second_too_many.as_bytes(), "the body is too large");
        let uncountable = format!("{chunked}{}\r\n", "f".repeat(40));
        check_bad(uncountable.as_bytes(), "a chunk size is not a number");
    }
}
