//! Authentication of clients, and the rules for what browsers may do with responses.
//!
//! A page on any site can make a browser send requests to this machine. Therefore the `host` header
//! has to be an address or a known name, also in a `GET` (a DNS name that an attacker has pointed
//! here is neither); a request from another origin is refused; and bodies have to have the content
//! type of JSON, which no form sends. When the server is reachable from other machines, a token is
//! needed.

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Query, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use turnstream::env::{Ids, SystemIds};
use turnstream::ui::ClientLimits;
use turnstream::{Error, ErrorKind};

use crate::app::App;
use crate::failure::Failure;
use crate::flags::Flags;

const TOKEN_VARIABLE: &str = "TURNSTREAM_WEB_TOKEN";

/// A shorter token could be guessed.
const MIN_TOKEN_BYTES: usize = 16;

const COOKIE: &str = "turnstream";

/// All resources of the page come from this server, and no other page may embed it in a frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Authenticates requests.
pub(crate) struct Access {
    address: SocketAddr,
    hosts: Vec<String>,
    origins: Vec<String>,
    tokens: Option<Tokens>,
}

struct Tokens {
    /// The cookie of browsers.
    cookie: String,
    /// The bearer token of programs, if the user has set one.
    bearer: Option<String>,
    /// A single-use code that opens the page.
    code: Mutex<String>,
}

impl Access {
    pub(crate) fn new(flags: &Flags, address: SocketAddr) -> Result<Self, Error> {
        let bearer = env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
        if bearer.as_ref().is_some_and(|token| token.len() < MIN_TOKEN_BYTES) {
            let message = format!("{TOKEN_VARIABLE} is shorter than {MIN_TOKEN_BYTES} bytes");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let needs_token = !address.ip().is_loopback() || bearer.is_some();
        let tokens = needs_token.then(|| Tokens {
            // All processes with the same token accept the same cookie.
            cookie: bearer.clone().filter(|it| is_plain(it)).unwrap_or_else(|| SystemIds.next_id()),
            bearer,
            code: Mutex::new(SystemIds.next_id()),
        });
        let (hosts, origins) = (flags.allowed_hosts.clone(), flags.allowed_origins.clone());
        Ok(Self { address, hosts, origins, tokens })
    }

    /// The address of the page, for the user who starts the server.
    pub(crate) fn greeting(&self) -> String {
        let host = match self.address.ip() {
            ip if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            ip => ip,
        };
        let page = format!("http://{}", SocketAddr::new(host, self.address.port()));
        match &self.tokens {
            None => page,
            Some(tokens) => {
                let code = tokens.code.lock().unwrap_or_else(PoisonError::into_inner);
                format!("{page}/login?code={code}   (valid once; then the server prints a new one)")
            }
        }
    }

    fn check(&self, request: &Request) -> Result<(), Failure> {
        let headers = request.headers();
        let host = text(headers, &header::HOST)
            .or_else(|| request.uri().authority().map(axum::http::uri::Authority::as_str))
            .unwrap_or_default()
            .to_lowercase();
        if !self.is_own_host(&host) {
            let message = "this server does not accept this host name; see --allow-host";
            return Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, message));
        }
        let is_own = match text(headers, &header::ORIGIN) {
            Some(origin) => {
                let origin = origin.to_lowercase();
                let authority = origin.split_once("://").map(|(_, authority)| authority);
                authority == Some(&*host) || self.origins.contains(&origin)
            }
            // A page of another site that loads a resource with a tag sends no origin.
            None => {
                let site = headers.get("sec-fetch-site").is_none_or(|site| site != "cross-site");
                site || headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
            }
        };
        if !is_own {
            let message = "pages of other origins may not use this server; see --allow-origin";
            return Err(Failure::new(StatusCode::FORBIDDEN, message));
        }
        let is_open = matches!(request.uri().path(), "/login" | "/health");
        if is_open || self.tokens.as_ref().is_none_or(|tokens| tokens.allow(headers)) {
            return Ok(());
        }
        let message = "open this page with the address that the server has printed";
        Err(Failure::new(StatusCode::UNAUTHORIZED, message))
    }

    /// Whether the host is a configured name or an IP address, which no DNS server can redirect.
    fn is_own_host(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address =
            name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let is_address = address.parse::<IpAddr>().is_ok();
        is_address || name == "localhost" || self.hosts.iter().any(|allowed| allowed == name)
    }
}

impl Tokens {
    fn allow(&self, headers: &HeaderMap) -> bool {
        let bearer =
            text(headers, &header::AUTHORIZATION).and_then(|it| it.strip_prefix("Bearer "));
        if let (Some(bearer), Some(expected)) = (bearer, &self.bearer) {
            return is_equal(bearer.trim(), expected);
        }
        let cookies = text(headers, &header::COOKIE).unwrap_or_default().split(';');
        let mut values = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        values.any(|(name, value)| name == COOKIE && is_equal(value, &self.cookie))
    }
}

/// Whether the token can be a cookie's value without escaping.
fn is_plain(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte))
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

/// Refuses a body by its declared length, before any of it is received.
fn check_size(headers: &HeaderMap) -> Result<(), Failure> {
    let size = text(headers, &header::CONTENT_LENGTH).and_then(|size| size.parse::<usize>().ok());
    if size.is_some_and(|size| size > ClientLimits::default().max_bytes) {
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large"));
    }
    Ok(())
}

/// A middleware in front of all routes.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let origin = text(request.headers(), &header::ORIGIN).map(str::to_lowercase);
    let origin = origin.filter(|origin| app.access.origins.contains(origin));
    let checked = app.access.check(&request).and_then(|()| check_size(request.headers()));
    let mut response = match checked {
        // A browser's preflight request, which asks whether a page of another origin may send a
        // request. It carries no token.
        _ if origin.is_some() && request.method() == Method::OPTIONS => {
            StatusCode::NO_CONTENT.into_response()
        }
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

#[derive(Deserialize)]
pub(crate) struct Login {
    code: String,
}

/// Sets the browser's cookie. Scripts cannot read it, and no other site can make the browser send
/// it.
pub(crate) async fn login(
    State(app): State<Arc<App>>,
    Query(login): Query<Login>,
) -> Result<Response, Failure> {
    let Some(tokens) = &app.access.tokens else { return Ok(Redirect::to("/").into_response()) };
    let is_new = {
        let mut code = tokens.code.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = is_equal(&login.code, &code);
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
    let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/", tokens.cookie);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response())
}
