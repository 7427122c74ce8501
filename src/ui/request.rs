//! Defines limits on requests from clients, and errors for rejected requests.

use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind};
use crate::item::{MAX_JSON_VALUES, Media, MediaSource, Part, has_too_many_values};
use crate::session::AlreadyLeased;

/// Limits on requests from clients.
///
/// ```
/// use turnstream::ui::ClientLimits;
///
/// let limits = ClientLimits { max_file_bytes: 20 << 20, ..ClientLimits::default() };
/// assert!(!limits.allow_urls);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// The maximum size of a request, in bytes. The default is 8 MiB.
    pub max_bytes: usize,
    /// The maximum number of messages in a request. The default is 1,000.
    pub max_messages: usize,
    /// The maximum number of parts in a message. The default is 1,000.
    pub max_parts: usize,
    /// The maximum number of tools that a client may add. The default is 64.
    pub max_tools: usize,
    /// The maximum size of an attached file, in bytes. The default is 4 MiB.
    pub max_file_bytes: usize,
    /// Whether a client may send a URL in place of a file's data. The default is `false`. The
    /// provider fetches the URL; this crate does not.
    pub allow_urls: bool,
    /// Whether a client may send messages with the roles `system` and `developer`. The default is
    /// `false`.
    pub allow_instructions: bool,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            max_bytes: 8 << 20,
            max_messages: 1_000,
            max_parts: 1_000,
            max_tools: 64,
            max_file_bytes: 4 << 20,
            allow_urls: false,
            allow_instructions: false,
        }
    }
}

/// The reason for rejecting a request, with the HTTP status for the response.
///
/// | status | meaning |
/// |---|---|
/// | 400 | the request is not JSON, or asks for something that the client is not allowed to do |
/// | 409 | the conversation is not in the state that the client assumes |
/// | 413 | the request is too large |
/// | 415 | the request's content type is not JSON |
/// | 422 | the request is JSON, but does not match the expected structure |
///
/// A session's [`Error`] converts into a `RequestError`. A [conflict](ErrorKind::Conflict) becomes
/// an error with status 409, whose message says whether another run is active, the conversation has
/// changed, or a verdict does not answer an open request. Any other error becomes an error with
/// status 500, whose message contains only the error's kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    status: u16,
    message: String,
}

impl RequestError {
    /// Creates an error with this HTTP status, for example 429. The message is sent to the client.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// Returns the HTTP status for the response, whose body should contain the error's message.
    pub fn status(&self) -> u16 {
        self.status
    }
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Conflict if error.find_source::<AlreadyLeased>().is_some() => {
                Self::new(409, "another run of this conversation is active")
            }
            ErrorKind::Conflict => Self::new(409, error.message()),
            kind => Self::new(500, format!("the run could not start: {kind}")),
        }
    }
}

impl ClientLimits {
    /// Parses a request body as JSON, which may have at most 200,000 values. `content_type` is the
    /// value of the `content-type` header.
    ///
    /// # Errors
    ///
    /// Returns an error if the content type is not JSON (status 415), if the body is too large or
    /// has too many values (413), if it is not JSON (400), or if it cannot be deserialized (422).
    pub fn parse_json<T: DeserializeOwned>(
        &self,
        content_type: Option<&str>,
        body: &[u8],
    ) -> Result<T, RequestError> {
        let media_type = content_type.and_then(|header| header.split(';').next());
        if !media_type.is_some_and(|it| it.trim().eq_ignore_ascii_case("application/json")) {
            return Err(RequestError::new(415, "the content type must be application/json"));
        }
        let max = self.max_bytes;
        if body.len() > max {
            return Err(RequestError::new(413, format!("the request is larger than {max} bytes")));
        }
        if has_too_many_values(body) {
            let message = format!("the request has more than {MAX_JSON_VALUES} JSON values");
            return Err(RequestError::new(413, message));
        }
        serde_json::from_slice(body).map_err(|error| {
            let status = if error.is_data() { 422 } else { 400 };
            RequestError::new(status, format!("the request cannot be read: {error}"))
        })
    }

    pub(super) fn check_instruction(&self, role: &str) -> Result<(), RequestError> {
        if self.allow_instructions {
            return Ok(());
        }
        Err(RequestError::new(400, format!("messages of the role `{role}` are not allowed")))
    }

    /// Creates a part from a file. `url` must be a `data:` URL, unless other URLs are allowed.
    pub(super) fn file(&self, media_type: &str, url: &str) -> Result<Part, RequestError> {
        let Some(data) = url.strip_prefix("data:") else {
            return self.file_at(media_type, url);
        };
        let Some((head, data)) = data.split_once(',') else {
            return Err(RequestError::new(400, "a `data:` URL has no data"));
        };
        let Some(declared) = head.strip_suffix(";base64") else {
            return Err(RequestError::new(400, "a `data:` URL is not base64"));
        };
        let declared = declared.split(';').next().unwrap_or_default();
        let media_type = if media_type.is_empty() { declared } else { media_type };
        self.file_data(media_type, data)
    }

    /// Creates a part from a file's bytes, encoded as base64.
    pub(super) fn file_data(&self, media_type: &str, base64: &str) -> Result<Part, RequestError> {
        let max = self.max_file_bytes;
        if base64.len() / 4 * 3 > max.saturating_add(2) {
            return Err(RequestError::new(413, format!("a file is larger than {max} bytes")));
        }
        if !is_base64(base64) {
            return Err(RequestError::new(400, "a file is not base64, padded"));
        }
        part(media_type, MediaSource::Data(base64.into()))
    }

    /// Creates a part from a file's URL.
    pub(super) fn file_at(&self, media_type: &str, url: &str) -> Result<Part, RequestError> {
        if !self.allow_urls {
            return Err(RequestError::new(400, "files must be sent as `data:` URLs"));
        }
        if !url.starts_with("https://") {
            return Err(RequestError::new(400, "the URL of a file must begin with https://"));
        }
        part(media_type, MediaSource::Url(url.into()))
    }
}

/// Returns the error for a request that contains both answers to waiting calls and a new message.
pub(super) fn answer_with_message() -> RequestError {
    let message = "calls are waiting, and the request has both answers to them and a new message: \
        send the answers without the message, or the message alone, which gives up the calls";
    RequestError::new(409, message)
}

pub(super) fn check_count(what: &str, count: usize, max: usize) -> Result<(), RequestError> {
    if count <= max {
        return Ok(());
    }
    Err(RequestError::new(413, format!("there are more than {max} {what}")))
}

/// The maximum length of a file's media type, in bytes.
const MAX_MEDIA_TYPE_BYTES: usize = 255;

fn part(media_type: &str, source: MediaSource) -> Result<Part, RequestError> {
    let is_allowed =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '+' | '-' | '_');
    let is_valid = media_type.len() <= MAX_MEDIA_TYPE_BYTES
        && media_type.contains('/')
        && media_type.chars().all(is_allowed);
    if !is_valid {
        return Err(RequestError::new(400, "a file has no media type such as image/png"));
    }
    let media = Media::new(media_type.to_ascii_lowercase(), source);
    Ok(if media.media_type.starts_with("image/") { Part::Image(media) } else { Part::File(media) })
}

/// Returns whether the string is padded base64 in the standard alphabet.
fn is_base64(text: &str) -> bool {
    let data = text.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    text.len().is_multiple_of(4) && text.len() - data.len() <= 2 && data.bytes().all(is_digit)
}
