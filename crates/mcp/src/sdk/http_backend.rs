//! The HTTP client of a connection, which extends rmcp's reqwest client with this crate's
//! credentials and detects that a session has ended.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::Sse;
use turnstream::error::{Error, ErrorKind};
use turnstream::http::reqwest::header::{HeaderName, HeaderValue};
use turnstream::http::{Authorization, KeyHeader, UnsignedRequest, reqwest};

use crate::connection_state::{ConnectionState, HttpFailure};
use crate::endpoint::HttpEndpoint;
use crate::http_events::{Resumptions, ServerEvents, StreamAttempt, StreamKey};

/// A connection's HTTP client, which extends rmcp's reqwest client with this crate's credentials.
#[derive(Clone)]
pub(crate) struct HttpBackend {
    pub(crate) client: reqwest::Client,
    pub(crate) endpoint: Arc<HttpEndpoint>,
    pub(crate) state: Arc<ConnectionState>,
    pub(crate) resumptions: Arc<Resumptions>,
}

type Headers = HashMap<HeaderName, HeaderValue>;
type HttpResult<T> = Result<T, StreamableHttpError<reqwest::Error>>;

impl HttpBackend {
    /// Sends a request with the authorization header attached. If the server rejects a token,
    /// fetches a new token and retries once.
    async fn authorized<T, F: Future<Output = HttpResult<T>>>(
        &self,
        headers: Headers,
        send: impl Fn(Headers) -> F,
    ) -> HttpResult<T> {
        let authorization = self.authorize().await?;
        let response = send(self.with_own_headers(headers.clone(), &authorization)?).await;
        match response {
            Err(error) if is_unauthorized(&error) && authorization.discard_cached_token() => {
                let authorization = self.authorize().await?;
                send(self.with_own_headers(headers, &authorization)?).await
            }
            response => response,
        }
    }

    /// Limits the values in each event, and how often the stream is resumed.
    fn limited(
        &self,
        events: BoxStream<'static, Result<Sse, SseError>>,
        attempt: StreamAttempt,
        key: Option<StreamKey>,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        ServerEvents::new(events, Arc::clone(&self.resumptions), attempt, key).boxed()
    }

    async fn authorize(&self) -> HttpResult<Authorization> {
        let HttpEndpoint { address, credential, .. } = &*self.endpoint;
        let Some(credential) = credential else { return Ok(Authorization::default()) };
        let request = UnsignedRequest::new(address.as_str());
        let authorized = credential.authorize(KeyHeader::Bearer, request).await;
        let authorization = authorized.map_err(own_error)?;
        self.endpoint.remember_secrets(&authorization.secrets);
        Ok(authorization)
    }

    fn with_own_headers(
        &self,
        mut headers: Headers,
        authorization: &Authorization,
    ) -> HttpResult<Headers> {
        for (name, value) in self.endpoint.headers.iter().chain(&authorization.headers) {
            let wrong = || {
                let message = "a key or header has characters that HTTP does not allow";
                own_error(Error::new(ErrorKind::InvalidRequest, message).with_parameter("headers"))
            };
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

/// Returns the error [`SessionExpired`](StreamableHttpError::SessionExpired) in place of any other
/// error with which a server reports that it does not know the session. The protocol requires the
/// status 404, but many servers respond with 400 or 410 and a text, or with a JSON-RPC error that
/// has no id.
fn session_error(
    response: HttpResult<StreamableHttpPostResponse>,
) -> HttpResult<StreamableHttpPostResponse> {
    let is_about_session = |text: &str| text.to_ascii_lowercase().contains("session");
    let has_ended = match &response {
        Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), _)) => {
            error.id.is_none() && is_about_session(&error.error.message)
        }
        Err(StreamableHttpError::UnexpectedServerResponse(text)) => {
            (text.starts_with("HTTP 400") || text.starts_with("HTTP 410")) && is_about_session(text)
        }
        _ => false,
    };
    if has_ended { Err(StreamableHttpError::SessionExpired) } else { response }
}

/// Adds the request's id to an error without an id. A server that rejects a request before it
/// parses the body does not know the id, but over HTTP, the response belongs to the request.
/// Without the id, the request would wait until its time limit.
fn with_request_id(
    response: StreamableHttpPostResponse,
    message: &ClientJsonRpcMessage,
) -> StreamableHttpPostResponse {
    match (response, message) {
        (
            StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session),
            ClientJsonRpcMessage::Request(request),
        ) if error.id.is_none() => {
            let error = ServerJsonRpcMessage::error(error.error, Some(request.id.clone()));
            StreamableHttpPostResponse::Json(error, session)
        }
        (response, _) => response,
    }
}

/// Returns whether the server responded with status 401, with or without a challenge.
fn is_unauthorized(error: &StreamableHttpError<reqwest::Error>) -> bool {
    match error {
        StreamableHttpError::AuthRequired(_) => true,
        StreamableHttpError::UnexpectedServerResponse(text) => text.starts_with("HTTP 401"),
        StreamableHttpError::Client(error) => error.status().is_some_and(|status| status == 401),
        _ => false,
    }
}

fn http_failure(error: &StreamableHttpError<reqwest::Error>) -> Option<HttpFailure> {
    match error {
        StreamableHttpError::HttpStatus(HttpStatusError { status, retry_after, .. }) => {
            Some(HttpFailure::Status { status: *status, retry_after: retry_after.clone() })
        }
        StreamableHttpError::Client(error) if error.is_body() || error.is_decode() => {
            Some(HttpFailure::CutOff)
        }
        _ => None,
    }
}

/// Wraps an error from this crate so that it can be passed through rmcp.
fn own_error(error: Error) -> StreamableHttpError<reqwest::Error> {
    StreamableHttpError::Io(std::io::Error::other(error))
}

impl StreamableHttpClient for HttpBackend {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(
            uri,
            message,
            session_id,
            auth_header,
            headers,
            limits,
        )
        .await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let post = |headers| {
            let (uri, message, session_id) = (uri.clone(), message.clone(), session_id.clone());
            let auth_header = auth_header.clone();
            self.client.post_message_with_response_limits(
                uri,
                message,
                session_id,
                auth_header,
                headers,
                limits,
            )
        };
        let response = self.authorized(headers, post).await;
        self.state.set_http_failure(response.as_ref().err().and_then(http_failure));
        let response = match session_id {
            Some(_) => session_error(response),
            None => response,
        };
        if matches!(response, Err(StreamableHttpError::SessionExpired)) {
            self.state.on_session_ended();
        }
        Ok(match with_request_id(response?, &message) {
            StreamableHttpPostResponse::Sse(events, session) => {
                let events = self.limited(events, StreamAttempt::default(), None);
                StreamableHttpPostResponse::Sse(events, session)
            }
            response => response,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> HttpResult<()> {
        let delete = |headers| {
            self.client.delete_session(
                uri.clone(),
                session_id.clone(),
                auth_header.clone(),
                headers,
            )
        };
        self.authorized(headers, delete).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> HttpResult<BoxStream<'static, Result<Sse, SseError>>> {
        let max_bytes = StreamableHttpResponseLimits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            headers,
            max_bytes,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        headers: Headers,
        max_bytes: usize,
    ) -> HttpResult<BoxStream<'static, Result<Sse, SseError>>> {
        let key = StreamKey::new(last_event_id.as_deref());
        let attempt = match &last_event_id {
            Some(_) => self.resumptions.wait(key).await,
            None => self.resumptions.wait_to_open().await,
        };
        // rmcp does not try again after this error.
        let attempt =
            attempt.ok_or(StreamableHttpError::<reqwest::Error>::ServerDoesNotSupportSse)?;
        let get = |headers| {
            let (uri, session_id) = (uri.clone(), session_id.clone());
            let (last_event_id, auth_header) = (last_event_id.clone(), auth_header.clone());
            self.client.get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                headers,
                max_bytes,
            )
        };
        let stream = self.authorized(headers, get).await;
        match &stream {
            Ok(_) => self.state.on_stream_opened(),
            Err(StreamableHttpError::Client(error))
                if error.status().is_some_and(|status| matches!(status.as_u16(), 404 | 410)) =>
            {
                self.state.on_stream_not_found();
            }
            Err(_) => {}
        }
        match stream {
            Ok(events) => Ok(self.limited(events, attempt, Some(key))),
            Err(error) => {
                self.resumptions.on_failed_attempt(key, attempt);
                Err(error)
            }
        }
    }
}
