//! The reason why a request is refused.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::json;
use turnstream::hub::{AlreadyRunning, LogUnavailable, NotRunning, ShuttingDown};
use turnstream::session::{AlreadyLeased, Conflict};
use turnstream::ui::{RequestError, ag_ui, ai_sdk};
use turnstream::{Error, ErrorKind};

use super::response::to_axum;

/// A status and a line for the user. The body is `{"error": …}`, with the number of `waiting_calls`
/// if the request would give them up.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    message: String,
    waiting_calls: usize,
    /// The error that the client does not see.
    cause: Option<Error>,
}

impl Failure {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), waiting_calls: 0, cause: None }
    }

    fn of(cause: Error, status: StatusCode, message: impl Into<String>) -> Self {
        Self { cause: Some(cause), ..Self::new(status, message) }
    }

    /// The error that the client does not see, for the server's log.
    pub(super) fn cause(&self) -> Option<&Error> {
        self.cause.as_ref()
    }

    /// The failure of a request that would give up calls that wait for approval.
    pub(super) fn calls_wait(waiting_calls: usize) -> Self {
        let message = "calls wait for approval: answer them, or give them up with \
             `\"waiting_calls\": \"give_up\"`";
        Self { waiting_calls, ..Self::conflict(message) }
    }

    /// The failure of a request that [`Authorize`](crate::Authorize) or the checks of its host and
    /// page have refused. An error without a status, other than an unknown key, is the app's own.
    pub(super) fn refused(error: Error) -> Self {
        let status = error.status().and_then(|status| StatusCode::from_u16(status).ok());
        let message = error.message().to_owned();
        match (status, error.kind()) {
            (Some(status), _) if status.is_server_error() => Self::of(error, status, message),
            (Some(status), _) => Self::new(status, message),
            (None, ErrorKind::Auth) => Self::new(StatusCode::UNAUTHORIZED, message),
            (None, _) => {
                let message = "the request could not be authorized";
                Self::of(error, StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }

    /// The failure of a request whose handler has panicked.
    pub(super) fn panicked() -> Self {
        let cause = Error::new(ErrorKind::Panic, "the handler of a request has panicked");
        Self::of(cause, StatusCode::INTERNAL_SERVER_ERROR, "the request failed: panic")
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(super) fn too_many(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, message)
    }
}

/// The form in which the clients of a route read errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorForm {
    Json,
    AiSdk,
    AgUi,
}

impl ErrorForm {
    /// The form of the errors at this path, whether a route exists there or not.
    pub(super) fn of_path(path: &str) -> Self {
        let is_under = |route: &str| {
            path.strip_prefix(route).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match () {
            () if is_under("/api/chat") => Self::AiSdk,
            () if is_under("/ag-ui") => Self::AgUi,
            () => Self::Json,
        }
    }
}

impl Failure {
    /// Returns the response in a protocol's form.
    pub(super) fn respond(self, form: ErrorForm) -> Response {
        let status = self.status;
        let mut response = match form {
            ErrorForm::Json => self.to_json(),
            ErrorForm::AiSdk => to_axum(ai_sdk::refuse(&RequestError::from(self))),
            ErrorForm::AgUi => to_axum(ag_ui::refuse(&RequestError::from(self))),
        };
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }

    fn to_json(&self) -> Response {
        let mut body = json!({ "error": self.message });
        if self.waiting_calls > 0 {
            body["waiting_calls"] = self.waiting_calls.into();
        }
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

/// For the clients of other protocols.
impl From<Failure> for RequestError {
    fn from(failure: Failure) -> Self {
        Self::new(failure.status.as_u16(), failure.message)
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let status = StatusCode::from_u16(error.status());
        Self::new(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if error.find_source::<ShuttingDown>().is_some() {
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
        }
        if error.find_source::<AlreadyRunning>().is_some()
            || error.find_source::<AlreadyLeased>().is_some()
        {
            return Self::conflict("a run of this session is active");
        }
        if error.find_source::<NotRunning>().is_some() {
            return Self::conflict("not running: the run has ended");
        }
        if error.find_source::<LogUnavailable>().is_some() {
            let message = "runs are temporarily unavailable";
            return Self::of(error, StatusCode::SERVICE_UNAVAILABLE, message);
        }
        let refusal = error.status().and_then(|status| StatusCode::from_u16(status).ok());
        match (error.kind(), refusal) {
            // A request that was refused before a run started.
            (
                ErrorKind::RateLimited
                | ErrorKind::Overloaded
                | ErrorKind::TooLarge
                | ErrorKind::Timeout
                | ErrorKind::InvalidRequest,
                Some(status),
            ) => Self::new(status, error.message()),
            (ErrorKind::Conflict, _) if error.find_source::<Conflict>().is_some() => {
                Self::conflict("another program has written to the session")
            }
            (ErrorKind::Conflict | ErrorKind::InvalidRequest, _) => Self::conflict(error.message()),
            (ErrorKind::Store | ErrorKind::OutcomeUnknown | ErrorKind::Connect, _) => {
                let message = "the conversations are temporarily unavailable";
                Self::of(error, StatusCode::SERVICE_UNAVAILABLE, message)
            }
            (kind, _) => {
                let message = format!("the request failed: {kind}");
                Self::of(error, StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }
}
