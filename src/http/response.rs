//! Provides access to the head of a response, and reads the body of an error response.

use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use reqwest::header::{HeaderMap, HeaderName};
use serde::de::IgnoredAny;
use tokio::time::Instant;

use crate::error::RateLimitScope;
use crate::http::{
    Body, DRAIN_TIMEOUT, MAX_DRAIN_BYTES, Secret, exhausted_rate_limit, mask_secrets, retry_after,
};

/// The maximum time to wait for the body of an error response after the head has arrived. The
/// turn's deadlines also apply to the body.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The headers that may contain a request's id, in order of preference. These headers are sent by
/// Anthropic, by OpenAI and many other vendors, by Azure, by Mistral, by AWS, and by the CDN that
/// many of these vendors use.
static REQUEST_ID_HEADERS: [HeaderName; 8] = [
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("apim-request-id"),
    HeaderName::from_static("x-ms-request-id"),
    HeaderName::from_static("mistral-correlation-id"),
    HeaderName::from_static("x-kong-request-id"),
    HeaderName::from_static("x-amzn-requestid"),
    HeaderName::from_static("cf-ray"),
];

/// The type of a response hook; see
/// [`HttpClient::with_response_hook`](crate::http::HttpClient::with_response_hook).
pub(super) type ResponseHook = dyn Fn(&ResponseHead<'_>) + Send + Sync;

/// The head of a response, which consists of the status and the headers. Secrets that the server
/// echoes are masked.
#[derive(Debug)]
pub struct ResponseHead<'a> {
    /// The HTTP status code.
    pub status: u16,
    /// The server's host and port.
    pub host: &'a str,
    headers: Vec<(&'a str, String)>,
}

impl<'a> ResponseHead<'a> {
    pub(super) fn new(answer: &'a reqwest::Response, host: &'a str, secrets: &[Secret]) -> Self {
        let shown = |value: &reqwest::header::HeaderValue| {
            mask_secrets(secrets, &String::from_utf8_lossy(value.as_bytes()))
        };
        let headers = answer.headers().iter();
        let headers = headers.map(|(name, value)| (name.as_str(), shown(value))).collect();
        Self { status: answer.status().as_u16(), host, headers }
    }

    /// Returns the first value of the header with this name. Header names are matched
    /// case-insensitively.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns all headers as pairs of a lower-case name and a value.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Returns the id that the provider assigned to the request. The id is read from any of the
    /// headers that vendors use for request ids.
    pub fn request_id(&self) -> Option<&str> {
        REQUEST_ID_HEADERS.iter().find_map(|name| self.header(name.as_str()))
    }
}

/// A response whose head has been received.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(super) headers: HeaderMap,
    /// The time at which the head was received.
    pub(crate) received_at: SystemTime,
    /// The proxy that sent the response, or `None` if the provider sent it.
    pub(crate) answering_proxy: Option<String>,
    pub(crate) body: Body,
}

impl Response {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the id that the provider assigned to the request.
    pub(crate) fn request_id(&self) -> Option<String> {
        let ids = REQUEST_ID_HEADERS.iter().find_map(|name| self.headers.get(name));
        ids.and_then(|id| id.to_str().ok()).map(str::to_owned)
    }

    /// Returns the retry delay that the provider requested.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        retry_after(|name| self.header(name), self.received_at)
    }

    /// Returns the exhausted rate limit, if any, and the time until the limit resets.
    pub(crate) fn exhausted_rate_limit(&self) -> (Option<RateLimitScope>, Option<Duration>) {
        exhausted_rate_limit(|name| self.header(name), self.received_at)
    }

    /// Returns whether the provider requests a retry, according to a header that Anthropic and
    /// OpenAI send, or `None` if the response has no such header or its value is invalid.
    pub(crate) fn should_retry_header(&self) -> Option<bool> {
        self.header("x-should-retry")?.trim().parse().ok()
    }

    /// Returns the body's compression format, if the body is compressed.
    pub(crate) fn content_encoding(&self) -> Option<&str> {
        let encoding = self.header("content-encoding").map(str::trim);
        encoding.filter(|encoding| !matches!(*encoding, "" | "identity"))
    }

    /// Reads the body of an error response into `words`, up to a maximum size. If the returned
    /// future is dropped, `words` still contains the bytes received so far.
    pub(crate) async fn read_error_body(&mut self, body: &mut Vec<u8>) {
        let mut until = Instant::now() + ERROR_BODY_TIMEOUT;
        // Read errors and timeouts are ignored, because the body is only used in an error message.
        while body.len() < MAX_DRAIN_BYTES
            && let Ok(Ok(Some(piece))) = tokio::time::timeout_at(until, self.body.try_next()).await
        {
            let capacity = MAX_DRAIN_BYTES - body.len();
            body.extend_from_slice(&piece[..piece.len().min(capacity)]);
            let whole = body.ends_with(b"}") || body.ends_with(b"]") || body.ends_with(b"\n");
            if whole && serde_json::from_slice::<IgnoredAny>(body).is_ok() {
                until = until.min(Instant::now() + DRAIN_TIMEOUT);
            }
        }
    }
}
