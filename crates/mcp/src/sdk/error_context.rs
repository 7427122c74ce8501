//! Converts rmcp's errors into errors that name the server and what its program wrote.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
};
use turnstream::env::{Clock, SystemClock};
use turnstream::error::{Error, ErrorKind};
use turnstream::http::{self, RefusedRedirect, Secret, reqwest, secrets_in_url};

use crate::connection_state::{ConnectionState, HttpFailure};
use crate::endpoint::Endpoint;
use crate::http_events::TOO_MANY_VALUES;
use crate::json_values::MAX_JSON_VALUES;
use crate::line_channel::OutputReport;
use crate::process::{ProcessReport, ServerProcess};
use crate::truncate::truncate_middle;

/// How long to wait for a process to exit after it has closed its output, so that an error can
/// include the exit status.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(250);

/// Details for a connection's error messages.
#[derive(Clone)]
pub(super) struct ErrorContext {
    pub(super) server: String,
    pub(super) endpoint: Endpoint,
    pub(super) process: Option<Arc<ServerProcess>>,
    pub(super) output: Arc<OutputReport>,
    pub(super) connection: Arc<ConnectionState>,
}

/// A program's output, for an error's message.
pub(super) struct ProgramOutput {
    process: Option<Arc<ProcessReport>>,
    pub(super) output: Arc<OutputReport>,
}

impl ProgramOutput {
    /// Returns the process's exit status and its output, for use in a message. Returns an empty
    /// string if there is nothing to report.
    pub(super) fn describe(&self) -> String {
        let about = self.process.as_ref().map(|process| process.describe()).unwrap_or_default();
        match self.output.noise.get() {
            Some(noise) => format!("{about}; it wrote to its standard output: {noise}"),
            None => about,
        }
    }
}

/// The output of the program that was started most recently, or `None` before one was started.
pub(super) type LatestOutput = Mutex<Option<ProgramOutput>>;

impl ErrorContext {
    pub(super) fn program_output(&self) -> ProgramOutput {
        let process = self.process.as_ref().map(|process| Arc::clone(&process.report));
        ProgramOutput { process, output: Arc::clone(&self.output) }
    }

    /// Masks the configured keys and the sent tokens in a string.
    pub(super) fn mask(&self, text: &str) -> String {
        mask_secrets(&self.endpoint.secrets(), text)
    }

    pub(super) async fn on_start_error(&self, error: ClientInitializeError) -> Error {
        let server = &self.server;
        match error {
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
                Box::pin(self.on_start_error(*fallback)).await
            }
            ClientInitializeError::ConnectionClosed(_) => self.on_closed().await,
            ClientInitializeError::TransportError { error, .. } => {
                self.on_transport_error(&*error.error).await
            }
            ClientInitializeError::JsonRpcError(error) => self.refused(&error),
            ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
                let versions: Vec<_> =
                    server_supported.iter().map(ProtocolVersion::as_str).collect();
                let message = format!(
                    "the MCP server `{server}` speaks none of the protocol's versions that this \
                     client does, but {}",
                    if versions.is_empty() { "names none".to_owned() } else { versions.join(", ") }
                );
                Error::new(ErrorKind::Unsupported, message)
            }
            other => {
                let what = self.mask(&shortened(&other.to_string()));
                let message =
                    format!("the MCP server `{server}` broke its protocol at the start: {what}");
                Error::new(ErrorKind::Protocol, message)
            }
        }
    }

    pub(super) async fn on_service_error(&self, error: ServiceError) -> Error {
        let server = &self.server;
        match error {
            ServiceError::McpError(error) => self.refused(&error),
            ServiceError::TransportSend(error) => self.on_transport_error(&*error.error).await,
            ServiceError::TransportClosed => self.on_closed().await,
            ServiceError::Timeout { .. } => {
                let message = format!("the MCP server `{server}` did not answer in time");
                Error::new(ErrorKind::Timeout, message)
            }
            other => {
                let what = self.mask(&shortened(&other.to_string()));
                let message = format!("the MCP server `{server}` broke its protocol: {what}");
                Error::new(ErrorKind::Protocol, message)
            }
        }
    }

    fn refused(&self, error: &ErrorData) -> Error {
        if error.code.0 == TOO_MANY_VALUES {
            let message = format!(
                "the MCP server `{}` sent a message with more than {MAX_JSON_VALUES} JSON values",
                self.server
            );
            return Error::new(ErrorKind::TooLarge, message);
        }
        let kind = match error.code {
            ErrorCode::METHOD_NOT_FOUND => ErrorKind::Unsupported,
            ErrorCode::INVALID_PARAMS | ErrorCode::INVALID_REQUEST => ErrorKind::InvalidRequest,
            _ => ErrorKind::Server,
        };
        let text = self.mask(&shortened(&error.message));
        let message =
            format!("the MCP server `{}` refused: {text} (code {})", self.server, error.code.0);
        Error::new(kind, message).with_source(Refusal { code: error.code.0 })
    }

    /// Returns the error for a closed connection. The error message states whether the server
    /// exceeded a limit or closed the connection.
    async fn on_closed(&self) -> Error {
        let server = &self.server;
        if let Some(limit) = self.output.oversized_line.get() {
            let message =
                format!("the MCP server `{server}` sent a message of more than {limit} bytes");
            return Error::new(ErrorKind::TooLarge, message);
        }
        if let Some(bytes) = self.output.unread_bytes.get() {
            let message =
                format!("the MCP server `{server}` did not read {bytes} bytes that it was sent");
            return Error::new(ErrorKind::Connect, message);
        }
        if let Some(mismatch) = self.output.mismatch.get() {
            let about = self.mask(&self.program_output().describe());
            let message = format!(
                "the program of the MCP server `{server}` is not an MCP server: {mismatch}{about}"
            );
            let error = Error::new(ErrorKind::Protocol, message).with_source(*mismatch);
            return error.with_retryable(false);
        }
        if let Some(process) = &self.process {
            let _ = tokio::time::timeout(EXIT_STATUS_TIMEOUT, process.wait_exited()).await;
        }
        match self.connection.http_failure() {
            Some(HttpFailure::Status { status, retry_after }) => {
                return self.status_error(status, retry_after.as_deref());
            }
            Some(HttpFailure::CutOff) => return self.cut_off_error(),
            None => {}
        }
        let (address, about) = (self.address(), self.mask(&self.program_output().describe()));
        let message = format!("the MCP server `{server}`{address} closed its connection{about}");
        Error::new(ErrorKind::Connect, message)
    }

    async fn on_transport_error(&self, error: &(dyn StdError + Send + Sync + 'static)) -> Error {
        match self.transport_error(error) {
            Some(error) => error,
            // `None` means that a pipe was closed.
            None => self.on_closed().await,
        }
    }

    /// Returns the transport's error, or `None` if the connection was closed.
    fn transport_error(&self, error: &(dyn StdError + 'static)) -> Option<Error> {
        let server = &self.server;
        for source in source_chain(error) {
            if let Some(own) = source
                .downcast_ref::<std::io::Error>()
                .and_then(|error| error.get_ref())
                .and_then(|inner| inner.downcast_ref::<Error>())
            {
                return Some(own.clone());
            }
            if source.is::<AuthRequiredError>() || source.is::<InsufficientScopeError>() {
                let status = if source.is::<AuthRequiredError>() { 401 } else { 403 };
                return Some(self.auth_error(status));
            }
            if let Some(HttpStatusError { status, retry_after, .. }) = source.downcast_ref() {
                return Some(self.status_error(*status, retry_after.as_deref()));
            }
            if let Some(error) = source.downcast_ref::<reqwest::Error>() {
                return Some(self.on_http_error(error));
            }
            match source.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
                Some(StreamableHttpError::Client(error)) => return Some(self.on_http_error(error)),
                Some(StreamableHttpError::ResponseBodyTooLarge { max_size }) => {
                    let message = format!(
                        "the MCP server `{server}` sent a message of more than {max_size} bytes"
                    );
                    return Some(Error::new(ErrorKind::TooLarge, message));
                }
                Some(StreamableHttpError::TransportChannelClosed) => return None,
                Some(StreamableHttpError::SessionExpired) => {
                    let message = format!("the MCP server `{server}` has ended the session");
                    let error = Error::new(ErrorKind::Connect, message);
                    return Some(error.with_source(SessionEnd));
                }
                Some(StreamableHttpError::UnexpectedServerResponse(text))
                    if text.starts_with("HTTP 401") || text.starts_with("HTTP 403") =>
                {
                    return Some(self.auth_error(if text.starts_with("HTTP 401") {
                        401
                    } else {
                        403
                    }));
                }
                Some(
                    StreamableHttpError::UnexpectedServerResponse(_)
                    | StreamableHttpError::UnexpectedContentType(_)
                    | StreamableHttpError::Deserialize(_)
                    | StreamableHttpError::UnexpectedEndOfStream
                    | StreamableHttpError::Sse(_),
                ) => {
                    let (address, text) = (self.address(), source.to_string());
                    let what = self.mask(&shortened(&text));
                    let message =
                        format!("the MCP server `{server}`{address} broke its protocol: {what}");
                    let error = Error::new(ErrorKind::Protocol, message);
                    return Some(match status_in_text(&text) {
                        Some(status) => error.with_status(status),
                        None => error,
                    });
                }
                _ => {}
            }
        }
        None
    }

    /// Returns the server's address, for use in a message after the server's name. Returns an empty
    /// string for a server that is not at an address.
    fn address(&self) -> String {
        match &self.endpoint {
            Endpoint::Http(http) => format!(" at {}", http.address.host_and_port()),
            Endpoint::Stdio(_) | Endpoint::Streams(_) => String::new(),
        }
    }

    fn cut_off_error(&self) -> Error {
        let (server, address) = (&self.server, self.address());
        let message = format!(
            "the MCP server `{server}`{address} closed its connection in the middle of an answer"
        );
        Error::new(ErrorKind::Connect, message).with_source(RequestFailed)
    }

    fn auth_error(&self, status: u16) -> Error {
        let (server, address) = (&self.server, self.address());
        let message = format!(
            "the MCP server `{server}`{address} requires another authorization: status {status}"
        );
        Error::new(ErrorKind::Auth, message).with_status(status)
    }

    /// Returns the error for a response with the status 429 or 5xx.
    fn status_error(&self, status: u16, retry_after: Option<&str>) -> Error {
        let (kind, did) = match status {
            429 => (ErrorKind::RateLimited, "refused the request"),
            529 => (ErrorKind::Overloaded, "failed"),
            _ => (ErrorKind::Server, "failed"),
        };
        let header = |name: &str| retry_after.filter(|_| name == "retry-after");
        let wait = http::retry_after(header, SystemClock.now());
        let (server, address) = (&self.server, self.address());
        let message = format!("the MCP server `{server}`{address} {did}: status {status}");
        let error = |message| Error::new(kind, message).with_status(status);
        match wait {
            Some(wait) => error(format!("{message}, retry after {wait:?}")).with_retry_after(wait),
            None => error(message),
        }
    }

    fn on_http_error(&self, error: &reqwest::Error) -> Error {
        let redirect =
            source_chain(error).find_map(|source| source.downcast_ref::<RefusedRedirect>());
        if let Some(redirect) = redirect {
            return self.on_redirect(redirect);
        }
        let innermost = source_chain(error).last().map(ToString::to_string).unwrap_or_default();
        let what = self.mask(&shortened(&innermost));
        let status = error.status().map(|status| status.as_u16());
        let (kind, did) = match (status, error.is_timeout()) {
            (Some(401 | 403), _) => (ErrorKind::Auth, "refused the request"),
            (Some(404), _) => (ErrorKind::InvalidRequest, "was not found at its address"),
            (Some(400..=499), _) => (ErrorKind::InvalidRequest, "refused the request"),
            (Some(_), _) => (ErrorKind::Server, "failed"),
            (None, true) => (ErrorKind::Timeout, "did not answer in time"),
            (None, false) if error.is_body() || error.is_decode() => return self.cut_off_error(),
            (None, false) => (ErrorKind::Connect, "could not be reached"),
        };
        let what = status.map_or(what, |status| format!("status {status}"));
        let message = format!("the MCP server `{}`{} {did}: {what}", self.server, self.address());
        let error = Error::new(kind, message).with_source(RequestFailed);
        status.map_or_else(|| error.clone(), |status| error.clone().with_status(status))
    }

    fn on_redirect(&self, RefusedRedirect { status, location, .. }: &RefusedRedirect) -> Error {
        // A login page's address may contain secrets of its own.
        let location = mask_secrets(&secrets_in_url(location), location);
        let location = self.mask(&shortened(&location));
        let message = format!(
            "the MCP server `{}` redirects to {location} (status {status}), which is not followed: \
             if it is the server's address, use it in place of the configured one",
            self.server
        );
        let error = Error::new(ErrorKind::InvalidRequest, message).with_source(Redirected);
        error.with_status(*status).with_parameter("url")
    }
}

/// Returns the status in rmcp's text about a response, such as `HTTP 400 Bad Request: …`.
fn status_in_text(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("HTTP ")?;
    rest.split([' ', ':']).next()?.parse().ok()
}

/// An error that the server sent in response to a request.
#[derive(Debug, thiserror::Error)]
#[error("the server answered with the error {code}")]
pub(crate) struct Refusal {
    /// The error's JSON-RPC code.
    pub(crate) code: i32,
}

/// Marks an error as caused by a session that the server does not know any more. The server has not
/// processed the request.
#[derive(Debug, thiserror::Error)]
#[error("the session has ended")]
pub(crate) struct SessionEnd;

/// Marks an error as caused by a redirect that was not followed.
#[derive(Debug, thiserror::Error)]
#[error("the server redirects to another address")]
pub(super) struct Redirected;

/// Marks an error as coming from the HTTP transport.
#[derive(Debug, thiserror::Error)]
#[error("the request failed")]
pub(super) struct RequestFailed;

/// Masks all of the given secrets in a string.
pub(super) fn mask_secrets(secrets: &[Secret], text: &str) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| secret.mask_in(&text))
}

/// Returns an iterator over an error, its source, the source's source, and so on.
fn source_chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Returns text from a server, shortened for use in an error message.
pub(super) fn shortened(text: &str) -> String {
    const MAX_TEXT: usize = 600;
    truncate_middle(text.to_owned(), MAX_TEXT)
}
