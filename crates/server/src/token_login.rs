//! Lets browsers in by a link that works once, and programs by a token.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::Query;
use axum::http::header::{self, HeaderMap};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD;
use futures::future::{self, BoxFuture};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use turnstream::env::{Ids, SystemIds};
use turnstream::{Error, ErrorKind};

use crate::authorize::{Authorize, Principal, header_text, presented_key};

/// A shorter token could be guessed.
const MIN_TOKEN_BYTES: usize = 16;

/// The name of the cookie. The server's port follows, because browsers send the cookies of a host
/// to all of its ports.
const COOKIE: &str = "turnstream";

/// The login of a server with one user: the user's browsers open a link that works once and get a
/// cookie, and programs send a token as `authorization: Bearer …`. `GET /login` and `GET /health`
/// need neither.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream_server::{ChatServer, TokenLogin};
///
/// # fn main() -> Result<(), turnstream::Error> {
/// let login = TokenLogin::new(Some("0123456789abcdef".to_owned()))?;
/// let router = ChatServer::new(Agent::new(Scripted::new(["Hello!"])))
///     .with_routes(login.routes(|path| println!("open http://127.0.0.1:8080{path}")))
///     .with_authorize(login)
///     .router();
/// # drop(router);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TokenLogin(Arc<Tokens>);

struct Tokens {
    /// The cookie of browsers.
    cookie: String,
    /// The token of programs.
    bearer: Option<String>,
    /// The single-use code of the next link.
    code: Mutex<String>,
}

#[derive(Deserialize)]
struct LoginQuery {
    code: String,
}

impl TokenLogin {
    /// Creates a login with the token of programs, or without one. Servers with the same token and
    /// port accept each other's cookies. A cookie does not reveal the token.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the token has fewer than
    /// 16 bytes.
    pub fn new(token: Option<String>) -> Result<Self, Error> {
        if token.as_ref().is_some_and(|token| token.len() < MIN_TOKEN_BYTES) {
            let message = format!("the token is shorter than {MIN_TOKEN_BYTES} bytes");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let cookie = token.as_ref().map_or_else(|| SystemIds.next_id(), |token| cookie_of(token));
        let code = Mutex::new(SystemIds.next_id());
        Ok(Self(Arc::new(Tokens { cookie, bearer: token, code })))
    }

    /// Returns the route `GET /login`. It sets the cookie, which scripts cannot read and which no
    /// other site can make the browser send, and then opens `/`.
    ///
    /// `on_link` receives the path that lets the next browser in, once: immediately, and again
    /// after each login.
    ///
    /// If a proxy has received the request over TLS and says so in `x-forwarded-proto`, browsers
    /// send the cookie only over TLS. A `HEAD` request, such as that of a preview, does not use up
    /// the link.
    pub fn routes(&self, on_link: impl Fn(&str) + Clone + Send + Sync + 'static) -> Router {
        let login = self.clone();
        on_link(&login.path());
        let enter = async move |method: Method, uri: Uri, headers: HeaderMap| match method {
            Method::HEAD => StatusCode::OK.into_response(),
            _ => login.enter(&uri, &headers, on_link),
        };
        Router::new().route("/login", get(enter))
    }

    fn path(&self) -> String {
        format!("/login?code={}", self.code())
    }

    fn enter(&self, uri: &Uri, headers: &HeaderMap, on_link: impl Fn(&str)) -> Response {
        let query = Query::<LoginQuery>::try_from_uri(uri);
        if !query.is_ok_and(|Query(LoginQuery { code })| self.use_code(&code)) {
            let message = "this address was already used; the server has printed a new one";
            return (StatusCode::UNAUTHORIZED, message).into_response();
        }
        on_link(&self.path());
        let (name, value) = (cookie_name(headers), &self.0.cookie);
        let is_secure = header_text(headers, "x-forwarded-proto") == Some("https");
        let secure = if is_secure { "; Secure" } else { "" };
        let cookie = format!("{name}={value}{secure}; HttpOnly; SameSite=Strict; Path=/");
        ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
    }

    fn use_code(&self, presented: &str) -> bool {
        let mut code = self.code();
        let is_new = is_equal(presented, &code);
        if is_new {
            *code = SystemIds.next_id();
        }
        is_new
    }

    fn code(&self) -> MutexGuard<'_, String> {
        self.0.code.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allows(&self, request: &Parts) -> bool {
        let Tokens { cookie, bearer, .. } = &*self.0;
        if let (Some(presented), Some(bearer)) = (presented_key(request), bearer) {
            return is_equal(presented, bearer);
        }
        let own = cookie_name(&request.headers);
        cookies(&request.headers).any(|(name, value)| name == own && is_equal(value, cookie))
    }
}

impl Authorize for TokenLogin {
    fn authorize<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Principal, Error>> {
        let is_open = matches!(request.uri.path(), "/login" | "/health");
        let principal = match is_open || self.allows(request) {
            true => Ok(Principal::new("user")),
            false => {
                let message = "open this page with the address that the server has printed";
                Err(Error::new(ErrorKind::Auth, message))
            }
        };
        Box::pin(future::ready(principal))
    }
}

impl std::fmt::Debug for TokenLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenLogin").finish_non_exhaustive()
    }
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let cookies = header_text(headers, header::COOKIE.as_str()).unwrap_or_default().split(';');
    cookies.filter_map(|cookie| cookie.trim().split_once('='))
}

/// The name of the cookie of the server that a request is sent to.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = header_text(headers, header::HOST.as_str()).unwrap_or_default();
    match host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(port) => format!("{COOKIE}-{port}"),
        None => COOKIE.to_owned(),
    }
}

/// A cookie from which the token cannot be computed.
fn cookie_of(token: &str) -> String {
    let hash = Sha256::new().chain_update(b"turnstream cookie\0").chain_update(token).finalize();
    URL_SAFE_NO_PAD.encode(hash)
}

/// Compares in constant time for texts of equal length.
fn is_equal(left: &str, right: &str) -> bool {
    let differs = |(left, right): (u8, u8)| left ^ right;
    left.len() == right.len()
        && left.bytes().zip(right.bytes()).map(differs).fold(0, |all, bits| all | bits) == 0
}
