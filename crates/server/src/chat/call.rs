//! A request of a principal, and the checks that precede each route.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::chat_server::ChatServer;
use super::failure::Failure;
use super::open_session::OpenSession;
use crate::authorize::{Principal, header_text};
use crate::body::receive;

/// A page of the server loads everything from the server, and no other page may embed it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A response, or the reason why the request is refused.
pub(super) type Answer = Result<Response, Failure>;

/// A request of a principal.
pub(super) struct Call {
    pub(super) server: ChatServer,
    pub(super) principal: Principal,
    /// The id of the session in the path, as clients know it. Empty if the route has none.
    pub(super) session: String,
    pub(super) parts: Parts,
    pub(super) body: Bytes,
}

impl Call {
    /// Receives a request that the [`guard`] has let through.
    pub(super) async fn receive(
        server: ChatServer,
        session: String,
        request: Request,
    ) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        let principal = parts.extensions.remove::<Principal>();
        let refused = || Failure::new(StatusCode::UNAUTHORIZED, "the request has no principal");
        let principal = principal.ok_or_else(refused)?;
        let body = match parts.method {
            Method::POST => receive(&parts, body, server.0.limits.requests.max_bytes).await?,
            _ => Bytes::new(),
        };
        Ok(Self { server, principal, session, parts, body })
    }

    /// Parses the body.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        Ok(self.server.0.limits.requests.parse_json(self.content_type(), &self.body)?)
    }

    pub(super) fn content_type(&self) -> Option<&str> {
        header_text(&self.parts.headers, header::CONTENT_TYPE.as_str())
    }

    pub(super) fn query<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let query = Query::try_from_uri(&self.parts.uri);
        let Query(query) =
            query.map_err(|error| Failure::new(StatusCode::BAD_REQUEST, error.body_text()))?;
        Ok(query)
    }

    /// Opens the session in the path, which may be a new one.
    pub(super) async fn open(&self) -> Result<Arc<OpenSession>, Failure> {
        self.open_id(&self.session).await
    }

    /// Opens a session of the principal, which may be a new one.
    pub(super) async fn open_id(&self, id: &str) -> Result<Arc<OpenSession>, Failure> {
        let settings = &self.server.0;
        let stored = settings.sessions.stored_id(&self.principal, id)?;
        Ok(settings.sessions.open(&settings.hub, &stored).await?)
    }

    /// Opens the session in the path.
    ///
    /// # Errors
    ///
    /// The status is 404 if the principal has no session with this id.
    pub(super) async fn open_existing(&self) -> Result<Arc<OpenSession>, Failure> {
        let open = self.open().await?;
        if open.session.version() > 0 || self.active_run(&open).await?.is_some() {
            return Ok(open);
        }
        Err(Failure::not_found("there is no such session"))
    }

    /// The id of the session's active run, in any process.
    pub(super) async fn active_run(&self, open: &OpenSession) -> Result<Option<String>, Failure> {
        Ok(self.server.0.hub.find_run(open.session.id()).await?)
    }
}

/// A response with a JSON document.
pub(super) fn json(status: StatusCode, document: impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(&document).map_err(|error| {
        let message = format!("the response cannot be written: {error}");
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?;
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// Decides from whom a request comes before any route sees it, and sets the headers that restrict
/// what browsers do with the response.
pub(super) async fn guard(
    State(server): State<ChatServer>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let access = &server.0.access;
    let origin = access.sites().allowed_origin(&parts);
    // A browser's preflight request, which asks whether a page of another origin may send a
    // request. It carries no secret.
    let is_preflight = origin.is_some() && parts.method == Method::OPTIONS;
    let mut response = match access.admit(&parts).await {
        _ if is_preflight => StatusCode::NO_CONTENT.into_response(),
        Ok(principal) => {
            parts.extensions.insert(principal);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(error) => Failure::from(error).into_response(),
    };
    let headers = response.headers_mut();
    let policy = HeaderValue::from_static(CONTENT_SECURITY_POLICY);
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(policy);
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    if let Some(origin) = origin.and_then(|origin| HeaderValue::try_from(origin).ok()) {
        set(header::VARY, "origin");
        set(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST");
        set(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, idempotency-key, last-event-id",
        );
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}
