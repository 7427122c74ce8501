//! A request of a principal, and the checks that precede each route.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::{FutureExt, Stream, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::chat_server::ChatServer;
use super::failure::{ErrorForm, Failure};
use super::open_session::OpenSession;
use crate::authorize::{Principal, header_text};
use crate::body::HeldBody;
use crate::slots::{Maximum, Slot};

/// A page of the server loads everything from the server, and no other page may embed it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A response, or the reason why the request is refused.
pub(super) type Answer = Result<Response, Failure>;

/// A request of a principal.
pub(super) struct Call {
    pub(super) server: ChatServer,
    pub(super) principal: Principal,
    /// The id of the session in the path, as clients know it. Empty if the route has none.
    pub(super) session: String,
    pub(super) parts: Parts,
    pub(super) body: HeldBody,
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
            Method::POST => {
                let max = server.0.limits.requests.max_bytes;
                server.0.usage.bodies.receive(&principal, &parts, body, max).await?
            }
            _ => HeldBody::empty(),
        };
        Ok(Self { server, principal, session, parts, body })
    }

    /// Parses the body.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        Ok(self.server.0.limits.requests.parse_json(self.content_type(), &self.body.bytes)?)
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

    /// Counts a client that reads events, until the slot is dropped.
    pub(super) fn take_reader(&self) -> Result<Slot, Failure> {
        let (limits, usage) = (&self.server.0.limits, &self.server.0.usage);
        let max =
            Maximum { of_principal: limits.max_readers_per_principal, of_all: limits.max_readers };
        let slot = usage.readers.take(&self.principal, 1, max);
        slot.map_err(|_| Failure::too_many("too many clients read events at the same time"))
    }

    /// The id of the session's active run, in any process.
    pub(super) async fn active_run(&self, open: &OpenSession) -> Result<Option<String>, Failure> {
        Ok(self.server.0.hub.find_run(open.session.id()).await?)
    }
}

/// Keeps `held` until the stream is dropped.
pub(super) fn hold<S: Stream>(stream: S, held: impl Send + 'static) -> impl Stream<Item = S::Item> {
    stream.inspect(move |_| {
        let _held = &held;
    })
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
    let (sites, form) = (server.0.access.sites(), ErrorForm::of_path(parts.uri.path()));
    let origin = sites.allowed_origin(&parts);
    // A browser's preflight request, which asks whether a page of another origin may send a
    // request. It carries no secret.
    let is_preflight = origin.is_some() && parts.method == Method::OPTIONS;
    let answered = AssertUnwindSafe(async {
        match server.0.access.admit(&parts).await {
            _ if is_preflight => Ok(StatusCode::NO_CONTENT.into_response()),
            Ok(principal) => {
                parts.extensions.insert(principal);
                Ok(next.run(Request::from_parts(parts, body)).await)
            }
            Err(error) => Err(Failure::refused(error)),
        }
    });
    let answered = answered.catch_unwind().await.unwrap_or_else(|_| Err(Failure::panicked()));
    let mut response = answered.unwrap_or_else(|failure| server.refuse(failure, form));
    let headers = response.headers_mut();
    let defaults = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // The next user of a browser or a proxy must not see a principal's data.
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in defaults {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if sites.lists_origins() {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(origin) = origin.and_then(|origin| HeaderValue::try_from(origin).ok()) {
        let allowed = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
            (
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                "authorization, content-type, idempotency-key, last-event-id, traceparent, tracestate",
            ),
        ];
        for (name, value) in allowed {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}
