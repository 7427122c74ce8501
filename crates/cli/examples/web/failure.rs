//! The reason why a request is refused.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use turnstream::hub::{AlreadyRunning, LogUnavailable, NotRunning, ShuttingDown};
use turnstream::session::AlreadyLeased;
use turnstream::ui::RequestError;
use turnstream::{Error, ErrorKind};

/// A status and a line for the user. The body is `{"error": …}`, with the number of `waiting_calls`
/// if the request would give them up.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    message: String,
    waiting_calls: usize,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), waiting_calls: 0 }
    }

    /// The failure of a request that would give up calls that wait for approval.
    pub(crate) fn calls_wait(waiting_calls: usize) -> Self {
        let message = "calls wait for approval: answer them, or give them up with \
             `\"waiting_calls\": \"give_up\"`";
        Self { waiting_calls, ..Self::conflict(message) }
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn too_many(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, message)
    }
}

impl Failure {
    pub(crate) fn into_message(self) -> String {
        self.message
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut body = json!({ "error": self.message });
        if self.waiting_calls > 0 {
            body["waiting_calls"] = self.waiting_calls.into();
        }
        let mut response = (self.status, Json(body)).into_response();
        let is_later =
            matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if is_later {
            response.headers_mut().insert("retry-after", axum::http::HeaderValue::from_static("5"));
        }
        response
    }
}

/// For the clients of other protocols.
impl From<Failure> for RequestError {
    fn from(failure: Failure) -> Self {
        Self::new(failure.status.as_u16(), failure.message)
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
            eprintln!("error: {error}");
            let message = "runs are temporarily unavailable";
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, message);
        }
        match error.kind() {
            ErrorKind::Conflict => Self::conflict("another program has written to the session"),
            ErrorKind::InvalidRequest => Self::conflict(error.message()),
            ErrorKind::Store | ErrorKind::OutcomeUnknown | ErrorKind::Connect => {
                eprintln!("error: {error}");
                let message = "the conversations are temporarily unavailable";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
            }
            _ => {
                eprintln!("error: {error}");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("the request failed: {}", error.kind()),
                )
            }
        }
    }
}

/// 415 for another content type, 400 for invalid JSON, 422 for JSON of another shape, 413 for too
/// large a body.
impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}
