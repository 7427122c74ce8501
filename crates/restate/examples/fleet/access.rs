//! Authentication of clients, and the rules for what browsers may do with responses.
//!
//! A page on any site can make a browser send requests to this machine. Therefore the `host` header
//! has to be `localhost` or an address, also in a `GET` (a DNS name that an attacker has pointed
//! here is neither); a request from another origin is refused; and bodies have to have the content
//! type of JSON, which no form sends. When the page is reachable from other machines, a token is
//! needed.

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Query, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use turnstream::env::{Ids, SystemIds};
use turnstream::{Error, ErrorKind};

use crate::app::App;
use crate::failure::Failure;

const TOKEN_VARIABLE: &str = "TURNSTREAM_WEB_TOKEN";

/// A shorter token could be guessed.
const MIN_TOKEN_BYTES: usize = 16;

const COOKIE: &str = "fleet";

/// All resources of the page come from this server, and no other page may embed it in a frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Authenticates requests.
pub(crate) struct Access {
    address: SocketAddr,
    login: Option<Login>,
}

struct Login {
    /// The cookie that a browser needs.
    token: String,
    /// A single-use code that sets the cookie.
    code: Mutex<String>,
}

impl Access {
    pub(crate) fn new(address: SocketAddr) -> Result<Self, Error> {
        let token = env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
        let is_usable = match &token {
            Some(token) => token.len() >= MIN_TOKEN_BYTES && token.bytes().all(is_plain),
            None => address.ip().is_loopback(),
        };
        if !is_usable {
            let message = format!(
                "{TOKEN_VARIABLE} needs {MIN_TOKEN_BYTES} letters and digits, because other \
                 machines can reach the page"
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let login = token.map(|token| Login { token, code: Mutex::new(SystemIds.next_id()) });
        Ok(Self { address, login })
    }

    /// The address of the page, for the user who starts the server.
    pub(crate) fn greeting(&self) -> String {
        let host = match self.address.ip() {
            ip if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            ip => ip,
        };
        let page = format!("http://{}", SocketAddr::new(host, self.address.port()));
        match &self.login {
            None => page,
            Some(login) => {
                let code = login.code.lock().unwrap_or_else(PoisonError::into_inner);
                format!("{page}/login?code={code}   (valid once; then the server prints a new one)")
            }
        }
    }

    fn check(&self, request: &Request) -> Result<(), Failure> {
        let headers = request.headers();
        let host = text(headers, &header::HOST).unwrap_or_default();
        if !is_own_host(host) {
            let message = "this server does not accept this host name";
            return Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, message));
        }
        let is_own = match text(headers, &header::ORIGIN) {
            Some(origin) => origin.split_once("://").is_some_and(|(_, it)| it == host),
            // A page of another site that loads a resource with a tag sends no origin.
            None => {
                let site = headers.get("sec-fetch-site").is_none_or(|site| site != "cross-site");
                site || headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
            }
        };
        if !is_own {
            let message = "pages of other origins may not use this server";
            return Err(Failure::new(StatusCode::FORBIDDEN, message));
        }
        let is_open = matches!(request.uri().path(), "/login" | "/health");
        if is_open || self.login.as_ref().is_none_or(|login| has_cookie(headers, &login.token)) {
            return Ok(());
        }
        let message = "open this page with the address that the server has printed";
        Err(Failure::new(StatusCode::UNAUTHORIZED, message))
    }
}

/// Whether the host is `localhost` or an IP address, which no DNS server can redirect.
fn is_own_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    address.parse::<IpAddr>().is_ok() || name == "localhost"
}

fn has_cookie(headers: &HeaderMap, token: &str) -> bool {
    let cookies = text(headers, &header::COOKIE).unwrap_or_default().split(';');
    let mut values = cookies.filter_map(|cookie| cookie.trim().split_once('='));
    values.any(|(name, value)| name == COOKIE && is_equal(value, token))
}

/// Whether a cookie can have this character without escaping.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

/// Compares in constant time for texts of equal length.
fn is_equal(left: &str, right: &str) -> bool {
    let differs = |(left, right): (u8, u8)| left ^ right;
    left.len() == right.len()
        && left.bytes().zip(right.bytes()).map(differs).fold(0, |all, bits| all | bits) == 0
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// A middleware in front of all routes.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match app.access.check(&request) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    };
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    response
}

#[derive(Deserialize)]
pub(crate) struct LoginQuery {
    code: String,
}

/// Sets the browser's cookie. Scripts cannot read it, and no other site can make the browser send
/// it.
pub(crate) async fn login(
    State(app): State<Arc<App>>,
    Query(query): Query<LoginQuery>,
) -> Result<Response, Failure> {
    let Some(login) = &app.access.login else { return Ok(Redirect::to("/").into_response()) };
    let is_new = {
        let mut code = login.code.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = is_equal(&query.code, &code);
        if is_new {
            *code = SystemIds.next_id();
        }
        is_new
    };
    if !is_new {
        let message = "this address was already used; the server has printed a new one";
        return Err(Failure::new(StatusCode::UNAUTHORIZED, message));
    }
    println!("For another browser, open {}", app.access.greeting());
    let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/", login.token);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response())
}
