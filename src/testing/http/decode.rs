//! Finds the requests in the bytes of a connection. Does no I/O.

use std::mem;

use bytes::{Bytes, BytesMut};

use crate::testing::http::request::HttpRequest;

/// How many bytes a request line and its headers may take together.
pub(super) const HEAD_LIMIT: usize = 64 * 1024;

/// How many bytes a body may have.
pub(super) const BODY_LIMIT: usize = 64 * 1024 * 1024;

/// Why the bytes are no request we read. Ends the connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadRequest(pub(super) &'static str);

/// What the bytes so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// No request yet: read more.
    NeedsBytes,
    /// The client waits for `100 Continue` before it sends the body. Said once per request.
    NeedsContinue,
    /// A whole request. The buffer may hold the next one already.
    Request(HttpRequest),
}

/// Decodes one request after the other from the bytes of one connection.
#[derive(Debug)]
pub(super) struct Decoder {
    /// Bytes received and not yet decoded. Whoever reads the socket appends here.
    pub(super) buffer: BytesMut,
    awaits: Awaits,
    /// What the lines have taken so far of [`HEAD_LIMIT`].
    line_bytes: usize,
    /// The request under construction.
    request: HttpRequest,
    /// The body under construction, if it comes in chunks.
    chunks: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    RequestLine,
    Header,
    Body { length: usize },
    ChunkSize,
    Chunk { length: usize },
    Trailer,
}

impl Decoder {
    pub(super) fn new(connection: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            awaits: Awaits::RequestLine,
            line_bytes: 0,
            request: HttpRequest { connection, ..HttpRequest::default() },
            chunks: BytesMut::new(),
        }
    }

    /// Whether the connection may end here without cutting a request short.
    pub(super) fn is_between_requests(&self) -> bool {
        self.awaits == Awaits::RequestLine && self.buffer.is_empty()
    }

    /// Goes as far as the bytes in the buffer allow.
    pub(super) fn decode(&mut self) -> Result<Decoded, BadRequest> {
        loop {
            match self.awaits {
                Awaits::RequestLine => {
                    let Some(line) = self.take_line()? else {
                        return Ok(Decoded::NeedsBytes);
                    };
                    // RFC 9112, 2.2: "a server that is expecting to receive and parse a
                    // request-line SHOULD ignore at least one empty line (CRLF) received prior to
                    // the request-line."
                    if !line.is_empty() {
                        (self.request.method, self.request.path) = parse_request_line(&line)?;
                        self.awaits = Awaits::Header;
                    }
                }
                Awaits::Header => {
                    let Some(line) = self.take_line()? else {
                        return Ok(Decoded::NeedsBytes);
                    };
                    if !line.is_empty() {
                        self.request.headers.push(parse_header(&line)?);
                        continue;
                    }
                    self.line_bytes = 0;
                    self.awaits = body_framing(&self.request)?;
                    if self.client_waits_for_continue() {
                        return Ok(Decoded::NeedsContinue);
                    }
                }
                Awaits::Body { length } => {
                    if self.buffer.len() < length {
                        return Ok(Decoded::NeedsBytes);
                    }
                    let body = self.buffer.split_to(length).freeze();
                    return Ok(Decoded::Request(self.finish(body)));
                }
                Awaits::ChunkSize => {
                    let Some(line) = self.take_line()? else {
                        return Ok(Decoded::NeedsBytes);
                    };
                    self.line_bytes = 0;
                    self.awaits = match parse_chunk_size(&line)? {
                        0 => Awaits::Trailer,
                        length if length > BODY_LIMIT - self.chunks.len() => {
                            return Err(BODY_TOO_LARGE);
                        }
                        length => Awaits::Chunk { length },
                    };
                }
                Awaits::Chunk { length } => {
                    if self.buffer.len() < length + 2 {
                        return Ok(Decoded::NeedsBytes);
                    }
                    let chunk = self.buffer.split_to(length + 2);
                    let Some(data) = chunk.strip_suffix(b"\r\n") else {
                        return Err(BadRequest("a chunk is longer than it said"));
                    };
                    self.chunks.extend_from_slice(data);
                    self.awaits = Awaits::ChunkSize;
                }
                Awaits::Trailer => {
                    let Some(line) = self.take_line()? else {
                        return Ok(Decoded::NeedsBytes);
                    };
                    if line.is_empty() {
                        let body = self.chunks.split().freeze();
                        return Ok(Decoded::Request(self.finish(body)));
                    }
                }
            }
        }
    }

    /// Takes a line off the buffer, without its end, if a whole one is there.
    ///
    /// A line that cannot become a good one is refused before its end has come, lest we wait for
    /// the rest of something that is not HTTP.
    fn take_line(&mut self) -> Result<Option<String>, BadRequest> {
        // RFC 9112, 2.2: "a recipient MAY recognize a single LF as a line terminator and ignore
        // any preceding CR."
        let end = self.buffer.iter().position(|byte| *byte == b'\n');
        let line = &self.buffer[..end.unwrap_or(self.buffer.len())];
        if self.line_bytes + line.len() > HEAD_LIMIT {
            return Err(BadRequest("the head is too large"));
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().any(|b| b.is_ascii_control() && *b != b'\t') {
            return Err(BadRequest("the head has a control character"));
        }
        let Some(end) = end else { return Ok(None) };
        let line = String::from_utf8(line.to_vec())
            .map_err(|_| BadRequest("the head is not valid UTF-8"))?;
        let taken = self.buffer.split_to(end + 1);
        self.line_bytes += taken.len();
        Ok(Some(line))
    }

    fn client_waits_for_continue(&self) -> bool {
        let expects = self.request.header("expect");
        expects.is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
            && self.awaits != (Awaits::Body { length: 0 })
            && self.buffer.is_empty()
    }

    fn finish(&mut self, body: Bytes) -> HttpRequest {
        self.awaits = Awaits::RequestLine;
        self.line_bytes = 0;
        let next = HttpRequest { connection: self.request.connection, ..HttpRequest::default() };
        HttpRequest { body, ..mem::replace(&mut self.request, next) }
    }
}

const BODY_TOO_LARGE: BadRequest = BadRequest("the body is too large");

fn parse_request_line(line: &str) -> Result<(String, String), BadRequest> {
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(path), Some("HTTP/1.1"), None)
            if is_token(method) && !path.is_empty() =>
        {
            Ok((method.to_owned(), path.to_owned()))
        }
        _ => Err(BadRequest("the request line is not one of HTTP/1.1")),
    }
}

fn parse_header(line: &str) -> Result<(String, String), BadRequest> {
    match line.split_once(':') {
        Some((name, value)) if is_token(name) => {
            let value = value.trim_matches([' ', '\t']);
            Ok((name.to_ascii_lowercase(), value.to_owned()))
        }
        _ => Err(BadRequest("a line of the head is no header")),
    }
}

/// Tells from the head how the body comes.
fn body_framing(request: &HttpRequest) -> Result<Awaits, BadRequest> {
    let values = |wanted: &'static str| {
        let named = move |(name, _): &&(String, String)| name == wanted;
        request.headers.iter().filter(named).map(|(_, value)| value)
    };
    let mut encodings = values("transfer-encoding");
    let mut lengths = values("content-length");
    match (encodings.next(), lengths.next()) {
        (None, None) => Ok(Awaits::Body { length: 0 }),
        (None, Some(length)) => {
            if lengths.any(|other| other != length) {
                return Err(BadRequest("two content lengths disagree"));
            }
            match parse_number(length, 10) {
                None => Err(BadRequest("the content length is no number")),
                Some(length) if length > BODY_LIMIT => Err(BODY_TOO_LARGE),
                Some(length) => Ok(Awaits::Body { length }),
            }
        }
        (Some(encoding), None) => {
            if !encoding.eq_ignore_ascii_case("chunked") || encodings.next().is_some() {
                return Err(BadRequest("the only transfer encoding known is chunked"));
            }
            Ok(Awaits::ChunkSize)
        }
        (Some(_), Some(_)) => Err(BadRequest("both a content length and a transfer encoding")),
    }
}

fn parse_chunk_size(line: &str) -> Result<usize, BadRequest> {
    let (size, _extensions) = line.split_once(';').unwrap_or((line, ""));
    parse_number(size.trim_end(), 16).ok_or(BadRequest("a chunk size is no number"))
}

/// Parses digits only, where `from_str_radix` would take a sign as well. A number too large to
/// count is as good as the largest: it is over every limit.
fn parse_number(digits: &str, radix: u32) -> Option<usize> {
    let lawful = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    lawful.then(|| usize::from_str_radix(digits, radix).unwrap_or(usize::MAX))
}

/// RFC 9110, 5.6.2: "any VCHAR, except delimiters".
fn is_token(word: &str) -> bool {
    let lawful = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !word.is_empty() && word.bytes().all(lawful)
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
    fn a_request_is_the_same_wherever_its_bytes_are_cut() {
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
    fn what_is_not_http_is_refused_before_its_line_ends() {
        check_bad(b"\x16\x03\x01", "the head has a control character");
    }

    #[test]
    fn malformed_requests_are_refused_with_a_reason() {
        let head = |rest: &str| format!("POST / HTTP/1.1\r\n{rest}\r\n\r\n").into_bytes();
        for line in ["hello", "GET /", "GET / HTTP/1.0", "GET / x HTTP/1.1", "G@T / HTTP/1.1"] {
            let line = format!("{line}\r\n");
            check_bad(line.as_bytes(), "the request line is not one of HTTP/1.1");
        }
        check_bad(&head("no colon"), "a line of the head is no header");
        check_bad(&head("name : value"), "a line of the head is no header");
        check_bad(&head("a: 1\rb: 2"), "the head has a control character");
        check_bad(&head("content-length: +1"), "the content length is no number");
        check_bad(&head("content-length: 1\r\ncontent-length: 2"), "two content lengths disagree");
        check_bad(
            &head("content-length: 1\r\ntransfer-encoding: chunked"),
            "both a content length and a transfer encoding",
        );
        check_bad(&head("transfer-encoding: gzip"), "the only transfer encoding known is chunked");
        let chunked = |rest: &str| [head("transfer-encoding: chunked"), rest.into()].concat();
        check_bad(&chunked("+3\r\n"), "a chunk size is no number");
        check_bad(&chunked("2\r\nabcd"), "a chunk is longer than it said");
    }

    #[test]
    fn heads_and_bodies_over_their_limits_are_refused() {
        let endless_line = vec![b'a'; HEAD_LIMIT + 1];
        check_bad(&endless_line, "the head is too large");
        let endless_headers = format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(HEAD_LIMIT / 6));
        check_bad(endless_headers.as_bytes(), "the head is too large");

        let over = BODY_LIMIT + 1;
        let sized = format!("PUT / HTTP/1.1\r\ncontent-length: {over}\r\n\r\n");
        check_bad(sized.as_bytes(), "the body is too large");
        let chunked = "PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        let second_too_many = format!("{chunked}1\r\na\r\n{BODY_LIMIT:x}\r\n");
        check_bad(second_too_many.as_bytes(), "the body is too large");
        let uncountable = format!("{chunked}{}\r\n", "f".repeat(40));
        check_bad(uncountable.as_bytes(), "the body is too large");
    }
}
