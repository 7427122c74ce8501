//! The client: settings, connections, and requests on their way.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use tokio::runtime;
use tokio::time::Instant;

use crate::env::{Clock, SystemClock, after};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::http::proxy::{Proxies, is_of_tunnel};
use crate::http::response::{Hook, Response, ResponseHead, run};
use crate::http::runtime::ConnectionRuntime;
use crate::http::secret::{basic, percent_decoded};
use crate::http::{Body, Secret, Timeouts, masked};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// Sends requests and keeps the connections. Cheap to clone; clones share the connections.
///
/// Redirects are not followed: a key is sent to the address that was given and no other.
#[derive(Clone)]
pub struct HttpClient {
    clients: Arc<Clients>,
    clock: Arc<dyn Clock>,
    hook: Option<Arc<Hook>>,
}

/// A connection is driven by the runtime that it was made on, so that each has its own client: one
/// that has ended, or that nobody runs at the moment, would leave a shared connection silent.
struct Clients {
    customize: Option<Box<Customize>>,
    connect_timeout: Duration,
    uses_proxies: bool,
    made: Mutex<Vec<Made>>,
}

type Customize = dyn Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync;

/// A client, the runtime that drives it, how long it waits for a connection, and which connections
/// it uses: reqwest takes these for a client and not for a request.
struct Made {
    runtime: runtime::Id,
    connect_timeout: Duration,
    connection: Connection,
    /// Whether it goes to servers of this machine, without any proxy.
    to_loopback: bool,
    client: Result<(reqwest::Client, Proxies), Error>,
}

/// So many clients are remembered, the newest.
const CLIENTS: usize = 32;

/// Which connection a request goes out on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// One that is open and not in use, or else a new one.
    Any,
    /// A new one: the server may have closed those that are open.
    New,
}

impl Clients {
    fn here(
        &self,
        connect_timeout: Option<Duration>,
        connection: Connection,
        to_loopback: bool,
    ) -> Result<(reqwest::Client, Proxies), Error> {
        let runtime = runtime::Handle::current().id();
        let connect_timeout = connect_timeout.unwrap_or(self.connect_timeout);
        let fits = |made: &&Made| {
            (made.runtime, made.connect_timeout, made.connection, made.to_loopback)
                == (runtime, connect_timeout, connection, to_loopback)
        };
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = made.iter().find(fits) {
            return made.client.clone();
        }
        let client = self.make(connect_timeout, connection, to_loopback);
        if made.len() == CLIENTS {
            drop(made.remove(0));
        }
        let of_made = client.clone();
        made.push(Made { runtime, connect_timeout, connection, to_loopback, client: of_made });
        client
    }

    fn make(
        &self,
        connect_timeout: Duration,
        connection: Connection,
        to_loopback: bool,
    ) -> Result<(reqwest::Client, Proxies), Error> {
        let mut settings = reqwest::Client::builder()
            .connect_timeout(connect_timeout)
            .tcp_nodelay(true)
            .user_agent(concat!("turnstream/", env!("CARGO_PKG_VERSION")));
        if let Some(customize) = &self.customize {
            settings = catch_panic(|| customize(settings))
                .map_err(|message| Error::panic("the settings of the HTTP client", &message))?;
        }
        settings = settings.redirect(reqwest::redirect::Policy::none());
        if to_loopback || !self.uses_proxies {
            settings = settings.no_proxy();
        }
        if connection == Connection::New {
            settings = settings.pool_max_idle_per_host(0);
        }
        let shown = format!("{settings:?}");
        let client = settings.build().map_err(|error| {
            let message = format!("no HTTP client could be made: {}", root_cause(&error));
            let error = Error::new(ErrorKind::Connect, message).with_source(error);
            // Nothing about it changes by itself.
            error.with_retryable(false)
        })?;
        let proxies = Proxies::of(&shown, &client);
        Ok((client, proxies))
    }
}

/// One request, as it is sent.
pub(crate) struct Post<'a> {
    pub(crate) to: &'a Endpoint,
    pub(crate) headers: &'a [Header],
    pub(crate) key: Option<(&'static str, String)>,
    pub(crate) body: Bytes,
    pub(crate) timeouts: &'a Timeouts,
    /// When it counts as sent.
    pub(crate) began: Instant,
    /// What no error shows.
    pub(crate) secrets: &'a Arc<[Secret]>,
    pub(crate) connection: Connection,
}

/// The name of a header, and its value.
pub(crate) type Header = (Cow<'static, str>, String);

/// An address that requests go to. Its user name and password, if any, are never shown.
#[derive(Clone)]
pub(crate) struct Endpoint(Url);

impl HttpClient {
    /// The client that all providers of this process share unless told otherwise.
    pub fn shared() -> Self {
        static SHARED: OnceLock<HttpClient> = OnceLock::new();
        SHARED.get_or_init(|| Self::of(None, CONNECT, true)).clone()
    }

    /// A client of its own whose settings you change: certificates, proxies, name resolution, a local
    /// address.
    ///
    /// The function is given the settings of the [shared](Self::shared) client. It is called once for
    /// each tokio runtime that requests are sent from, when the first one is sent; again where a
    /// provider sets a limit for connections of its own, where a connection that the server closed is
    /// replaced, and for servers of this machine. It must not send requests itself. If it panics, the
    /// turn fails with [`ErrorKind::Panic`].
    ///
    /// Two things are set after it: redirects are not followed, since the server that a request is
    /// sent on to would be given the key, and requests to this machine (`localhost`, `127.0.0.1`)
    /// go through no proxy.
    ///
    /// A key belongs into the provider, not into the default headers of this client: the provider does
    /// not know of those, so that it cannot keep them out of errors, nor from going over plain http.
    ///
    /// This is the one signature of the crate with a type of its transport, which is
    /// [`reqwest`](crate::http::reqwest).
    ///
    /// ```
    /// use turnstream::http::{HttpClient, reqwest};
    /// use turnstream::provider::Anthropic;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let proxy = reqwest::Proxy::all("http://proxy.example:3128")?;
    /// let http = HttpClient::customized(move |client| client.proxy(proxy.clone()));
    /// let model = Anthropic::new("claude-sonnet-4-5").with_http(http);
    /// # Ok(())
    /// # }
    /// ```
    pub fn customized(
        customize: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync + 'static,
    ) -> Self {
        Self::of(Some(Box::new(customize)), CONNECT, true)
    }

    /// A client of its own that goes straight to its servers, whatever proxy the environment names.
    pub fn without_proxy() -> Self {
        Self::of(None, CONNECT, false)
    }

    /// A client of its own that gives up on a connection after `timeout`; 10 seconds is usual.
    pub fn with_connect_timeout(timeout: Duration) -> Self {
        Self::of(None, timeout, true)
    }

    /// What goes wrong in making one, for example no certificates, is told by the first request.
    fn of(
        customize: Option<Box<Customize>>,
        connect_timeout: Duration,
        uses_proxies: bool,
    ) -> Self {
        let made = Mutex::default();
        let clients = Arc::new(Clients { customize, connect_timeout, uses_proxies, made });
        Self { clients, clock: Arc::new(SystemClock), hook: None }
    }

    /// Sets the clock by which a server's dates are read, for example that of a `retry-after`.
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets what is called with the head of every answer: where rate limits and request ids can be
    /// read off before they become an error. It runs within the poll of the turn and should not
    /// block. If it panics, the turn fails with [`ErrorKind::Panic`].
    ///
    /// ```
    /// use turnstream::http::HttpClient;
    ///
    /// let http = HttpClient::shared().with_response_hook(|head| {
    ///     if let Some(left) = head.header("x-ratelimit-remaining-requests") {
    ///         println!("{}: {left} requests left", head.host());
    ///     }
    /// });
    /// ```
    pub fn with_response_hook(
        mut self,
        hook: impl Fn(&ResponseHead<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Posts JSON and waits for the head of the answer. Dropping the future cancels the request.
    pub(crate) async fn post(&self, post: Post<'_>) -> Result<Response, Error> {
        let Post { to, headers, key, body, timeouts, began, secrets, connection } = post;
        let (client, proxies) =
            self.clients.here(timeouts.connect, connection, to.is_loopback())?;
        let mut map = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        map.insert(reqwest::header::CONTENT_TYPE, json);
        map.insert(reqwest::header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        // What is packed cannot be read here; without a word a server may send what it likes.
        map.insert(reqwest::header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some((name, value)) = key {
            let mut value = header_value(&value)?;
            value.set_sensitive(true);
            map.insert(HeaderName::from_static(name), value);
        }
        for (name, value) in headers {
            let mut value = header_value(value)?;
            value.set_sensitive(is_secret(name));
            map.insert(header_name(name)?, value);
        }
        let first = after(began, timeouts.first_byte);
        let sending = client.request(Method::POST, to.0.clone()).headers(map).body(body).send();
        let runtime = ConnectionRuntime::current();
        let sent = match first {
            Some(at) => runtime.wait(tokio::time::timeout_at(at, sending)).await?,
            None => Ok(runtime.wait(sending).await?),
        };
        let Ok(sent) = sent else {
            let message = format!("{} did not answer within {:?}", to.host(), timeouts.first_byte);
            return Err(Error::new(ErrorKind::Timeout, message));
        };
        let mask = |error: Error, secrets: &[Secret]| error.rewritten(|text| masked(secrets, text));
        let mut answer = sent.map_err(|error| {
            let closed = is_closed(&error);
            let error = mask(sending_failed(to, &proxies, error), secrets);
            // Marked last, so that a source that is rewritten does not hide the mark.
            if closed { error.map_source(ConnectionClosed) } else { error }
        })?;
        if let Some(hook) = &self.hook {
            run(&**hook, &ResponseHead::new(&answer, &to.host(), secrets))?;
        }
        let (status, headers) = (answer.status().as_u16(), std::mem::take(answer.headers_mut()));
        // "407 Proxy Authentication Required" comes from no one else.
        let by_proxy = (status == 407).then(|| proxies.to(to)).flatten();
        let secrets = secrets.clone();
        let bytes =
            answer.bytes_stream().map_err(move |error| mask(reading_failed(error), &secrets));
        Ok(Response {
            status,
            headers,
            now: self.clock.now(),
            by_proxy,
            body: Body::new(bytes, runtime, first, timeouts.idle),
        })
    }
}

impl Endpoint {
    /// Reads a base URL; a `/` at its end is ignored. `path` is joined to it.
    pub(crate) fn new(base: &str, path: &str) -> Result<Self, Error> {
        let wrong = |what: &str| {
            let message = format!("the base URL {what}");
            Error::new(ErrorKind::InvalidRequest, message).with_parameter("base_url")
        };
        let mut url =
            Url::parse(base.trim()).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("must begin with http:// or https://"));
        }
        let joined = format!("{}{path}", url.path().trim_end_matches('/'));
        url.set_path(&joined);
        url.set_fragment(None);
        Ok(Self(url))
    }

    /// What of the address is not to be shown: its password, the values of its query, and what becomes
    /// of a user name and password on their way. Not a version (Azure's `api-version=preview`, a word
    /// that errors use) or another short word.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        let is_long = |value: &str| value.len() >= 8;
        let query = self.0.query_pairs().filter(|(name, _)| name != "api-version");
        let query = query.filter(|(name, value)| is_secret(name) || is_long(value));
        let mut secrets: Vec<_> = query.map(|(_, value)| Secret::new(value)).collect();
        let (user, password) = (percent_decoded(self.0.username()), self.0.password());
        let password = password.map(percent_decoded).unwrap_or_default();
        // A user name alone is a key.
        let key = if password.is_empty() { &user } else { &password };
        secrets.extend([Secret::new(key), Secret::new(basic(&user, &password))]);
        secrets
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.host_name().trim_matches(['[', ']']);
        match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(address) => address.is_loopback() || address.is_unspecified(),
            Err(_) => host == "localhost",
        }
    }

    /// Whether what is sent to it can be read on its way.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// Whether there is a user name, a password or a key in it.
    pub(crate) fn has_credentials(&self) -> bool {
        let in_query = |(name, _): (Cow<'_, str>, Cow<'_, str>)| is_secret(&name);
        let in_front = !self.0.username().is_empty() || self.0.password().is_some();
        in_front || self.0.query_pairs().any(in_query)
    }

    pub(super) fn scheme(&self) -> &str {
        self.0.scheme()
    }

    /// The host, without its port, and without the dot that a whole name may end with.
    pub(crate) fn host_name(&self) -> &str {
        self.0.host_str().unwrap_or_default().trim_end_matches('.')
    }

    /// Host and port, the part that can be shown.
    pub(crate) fn host(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// An address below this one, with a parameter behind those of its query, unless it has that
    /// one. What has a meaning in an address is written so that it has none.
    pub(crate) fn below<'s>(
        &self,
        segments: impl IntoIterator<Item = &'s str>,
        (name, value): (&str, &str),
    ) -> Self {
        let mut url = self.0.clone();
        // Law: only an address that cannot be a base has no segments, and `new` refuses those.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        if url.query_pairs().all(|(known, _)| known != name) {
            url.query_pairs_mut().append_pair(name, value);
        }
        Self(url)
    }
}

fn header_value(value: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(value).map_err(|_| {
        let message = "a key or header has characters that HTTP does not allow";
        Error::new(ErrorKind::InvalidRequest, message)
    })
}

fn header_name(name: &str) -> Result<HeaderName, Error> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        let message = "the name of a header has characters that HTTP does not allow";
        Error::new(ErrorKind::InvalidRequest, message).with_parameter("headers")
    })
}

/// Whether a header, or a field of a query, holds what is not to be shown, by the words of its name.
pub(crate) fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 15] = [
        "auth",
        "authorization",
        "key",
        "apikey",
        "token",
        "secret",
        "cookie",
        "password",
        "credential",
        "credentials",
        "signature",
        "sig",
        "jwt",
        "bearer",
        "assertion",
    ];
    // It says which request is sent again, and opens nothing.
    let is_idempotency = name.eq_ignore_ascii_case("idempotency-key");
    let is_word = |part: &str| WORDS.iter().any(|word| part.eq_ignore_ascii_case(word));
    !is_idempotency && name.split(['-', '_', '.']).any(is_word)
}

fn sending_failed(to: &Endpoint, proxies: &Proxies, error: reqwest::Error) -> Error {
    let error = error.without_url();
    let proxy = proxies.to(to).map(|proxy| format!("the proxy {proxy}"));
    let (kind, what) = if is_of_tunnel(&error) {
        let proxy = proxy.unwrap_or_else(|| "a proxy".to_owned());
        (ErrorKind::Connect, format!("{proxy} did not connect to {}", to.host()))
    } else if let Some(proxy) = proxy.filter(|_| error.is_connect()) {
        (ErrorKind::Connect, format!("could not connect to {} through {proxy}", to.host()))
    } else if error.is_connect() {
        (ErrorKind::Connect, format!("could not connect to {}", to.host()))
    } else if error.is_timeout() {
        (ErrorKind::Timeout, format!("{} did not answer in time", to.host()))
    } else {
        (ErrorKind::Connect, format!("the request to {} failed", to.host()))
    };
    Error::new(kind, format!("{what}: {}", root_cause(&error))).with_source(error)
}

/// Marks an error: the connection was closed before any byte of the answer came. Most likely the
/// server had closed it while it was not in use.
#[derive(Debug)]
struct ConnectionClosed(Option<Arc<dyn StdError + Send + Sync>>);

impl fmt::Display for ConnectionClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection was closed before the answer")
    }
}

impl StdError for ConnectionClosed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Whether the connection was closed before any byte of the answer came.
pub(crate) fn was_closed(error: &Error) -> bool {
    error.find_source::<ConnectionClosed>().is_some()
}

/// The same of reqwest's error. Connections that were never made, and time-outs, are not meant.
fn is_closed(error: &reqwest::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    if error.is_connect() || error.is_timeout() {
        return false;
    }
    let mut source = error.source();
    while let Some(error) = source {
        let by_hyper = error
            .downcast_ref::<hyper::Error>()
            .is_some_and(|error| error.is_incomplete_message() || error.is_closed());
        let by_the_system = error.downcast_ref::<std::io::Error>().is_some_and(|error| {
            matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
        });
        if by_hyper || by_the_system {
            return true;
        }
        source = error.source();
    }
    false
}

fn reading_failed(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let message = format!("the connection broke: {}", root_cause(&error));
    Error::new(ErrorKind::Connect, message).with_source(error)
}

/// The innermost source says what happened; those around it say it happened.
fn root_cause(error: &dyn StdError) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_of_a_base_url_is_ignored() {
        for base in ["http://h:1/v1", "http://h:1/v1/", " http://h:1/v1// "] {
            let endpoint = Endpoint::new(base, "/chat/completions").unwrap();
            assert_eq!(endpoint.0.as_str(), "http://h:1/v1/chat/completions");
        }
    }

    #[test]
    fn a_user_name_in_a_base_url_is_never_shown() {
        let endpoint = Endpoint::new("https://me:secret@host/", "/v1").unwrap();
        assert_eq!(format!("{endpoint:?}"), "host");
    }

    #[test]
    fn a_query_is_not_shown_but_for_a_version() {
        let endpoint = Endpoint::new("https://host?api-version=preview&key=hunter22", "").unwrap();
        let shown = masked(&endpoint.secrets(), "hunter22 is no preview");
        assert_eq!(shown, "… is no preview");
    }

    #[test]
    fn what_is_no_http_url_is_refused() {
        for base in ["", "localhost:8080", "ftp://h", "http://"] {
            let error = Endpoint::new(base, "/v1").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{base}");
        }
    }
}
