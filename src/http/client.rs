//! The HTTP client, which manages settings and connections and sends requests.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::TryStreamExt;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::runtime::Id;

use crate::env::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, catch_panic, panic_to_error, source_chain};
use crate::http::connection_runtime::{self, ConnectionRuntime};
use crate::http::proxy::{Proxies, is_tunnel_error};
use crate::http::response::{Response, ResponseHead, ResponseHook};
use crate::http::{Body, Endpoint, Header, RequestBody, Secret, is_secret_name, mask_secrets};
use crate::lock::lock_ignoring_poison;

/// The connect timeout for requests whose [`Timeouts`](crate::http::Timeouts) do not set a connect
/// timeout.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests and pools connections. A client is cheap to clone; clones share a connection
/// pool.
///
/// The client does not follow redirects, so a key is only ever sent to the configured address. Only
/// the requests of a [`reqwest_client`](Self::reqwest_client) follow redirects, and only within the
/// origin of the address.
#[derive(Clone)]
pub struct HttpClient {
    clients: Arc<ClientCache>,
    clock: Arc<dyn Clock>,
    response_hook: Option<Arc<ResponseHook>>,
}

/// The cached reqwest clients, one per runtime. A connection is driven by the runtime that opened
/// it. If another runtime used the connection, the connection would stall once the first runtime
/// ended or was no longer driven.
struct ClientCache {
    customize: Option<Box<CustomizeFn>>,
    uses_proxies: bool,
    cached: Mutex<Vec<(ClientKey, CachedClient)>>,
}

type CustomizeFn = dyn Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync;

/// The properties that determine which cached reqwest client is used: the runtime that drives its
/// connections, the connect timeout, whether connections are reused, whether a proxy may be used,
/// and which redirects are followed. reqwest has no such settings for individual requests.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ClientKey {
    runtime: Id,
    connect_timeout: Duration,
    connection_policy: ConnectionPolicy,
    /// Whether the client's requests are sent to servers on this machine, without a proxy.
    is_loopback: bool,
    redirect_policy: RedirectPolicy,
}

type CachedClient = Result<(reqwest::Client, Proxies), Error>;

/// The maximum number of cached clients. When the cache is full, the oldest client is evicted.
const MAX_CACHED_CLIENTS: usize = 32;

/// Determines which connection a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPolicy {
    /// The request reuses an idle connection if one is available, and opens a new connection
    /// otherwise.
    Reuse,
    /// The request opens a new connection, because the server may have closed the existing
    /// connections.
    OpenNew,
}

/// Determines which redirects are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedirectPolicy {
    /// A redirect is a response like any other.
    ReturnResponse,
    /// A redirect with status 307 or 308, which keeps the method and the body, is followed within
    /// the origin of the address. Any other redirect is a [`RefusedRedirect`] error.
    FollowWithinOrigin,
}

impl RedirectPolicy {
    fn to_reqwest(self) -> reqwest::redirect::Policy {
        match self {
            Self::ReturnResponse => reqwest::redirect::Policy::none(),
            Self::FollowWithinOrigin => reqwest::redirect::Policy::custom(|attempt| {
                let keeps_body = matches!(attempt.status().as_u16(), 307 | 308);
                let first = attempt.previous().first();
                let is_within_origin =
                    first.is_some_and(|first| first.origin() == attempt.url().origin());
                if keeps_body && is_within_origin && attempt.previous().len() <= MAX_REDIRECTS {
                    return attempt.follow();
                }
                let (status, location) = (attempt.status().as_u16(), attempt.url().to_string());
                attempt.error(RefusedRedirect { status, location })
            }),
        }
    }
}

/// The maximum number of redirects that are followed for a request.
const MAX_REDIRECTS: usize = 10;

/// The source of the error for a redirect that a [`reqwest_client`](HttpClient::reqwest_client)
/// does not follow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedRedirect {
    /// The status of the response.
    pub status: u16,
    /// The URL to which the server redirects. The URL may contain secrets.
    pub location: String,
}

impl fmt::Display for RefusedRedirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the redirect with the status {} was not followed", self.status)
    }
}

impl StdError for RefusedRedirect {}

impl ClientCache {
    fn get_or_build(
        &self,
        runtime: Id,
        connect_timeout: Option<Duration>,
        connection: ConnectionPolicy,
        to_loopback: bool,
        redirect_policy: RedirectPolicy,
    ) -> CachedClient {
        let connect_timeout = connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT);
        let purpose = ClientKey {
            runtime,
            connect_timeout,
            connection_policy: connection,
            is_loopback: to_loopback,
            redirect_policy,
        };
        let mut made = lock_ignoring_poison(&self.cached);
        if let Some((_, client)) = made.iter().find(|(known, _)| *known == purpose) {
            return client.clone();
        }
        let client = self.build_client(purpose);
        if made.len() == MAX_CACHED_CLIENTS {
            drop(made.remove(0));
        }
        made.push((purpose, client.clone()));
        client
    }

    fn build_client(&self, purpose: ClientKey) -> CachedClient {
        let mut settings = reqwest::Client::builder()
            .connect_timeout(purpose.connect_timeout)
            .tcp_nodelay(true)
            .user_agent(concat!("turnstream/", env!("CARGO_PKG_VERSION")));
        if let Some(customize) = &self.customize {
            settings = catch_panic(|| customize(settings)).map_err(|message| {
                Error::from_panic("the settings of the HTTP client", &message)
            })?;
        }
        settings = settings.redirect(purpose.redirect_policy.to_reqwest());
        if purpose.is_loopback || !self.uses_proxies {
            settings = settings.no_proxy();
        }
        if purpose.connection_policy == ConnectionPolicy::OpenNew {
            settings = settings.pool_max_idle_per_host(0);
        }
        let shown = format!("{settings:?}");
        let client = settings.build().map_err(|error| {
            let message = format!("could not create an HTTP client: {}", root_cause(&error));
            let error = Error::new(ErrorKind::Connect, message).with_source(error);
            // A retry would fail in the same way.
            error.with_retryable(false)
        })?;
        let proxies = Proxies::from_debug_output(&shown, &client);
        Ok((client, proxies))
    }
}

/// A `POST` request to send.
pub(crate) struct PostRequest<'a> {
    pub(crate) endpoint: &'a Endpoint,
    /// The request's headers. If two headers have the same name, only the later header is sent.
    pub(crate) headers: &'a [&'a Header],
    pub(crate) body: &'a RequestBody,
    /// The connect timeout, if different from the client's default.
    pub(crate) connect_timeout: Option<Duration>,
    /// The secrets to mask in errors.
    pub(crate) secrets: &'a Arc<[Secret]>,
    pub(crate) connection_policy: ConnectionPolicy,
}

impl HttpClient {
    /// Returns the default client, which is shared by all providers in this process.
    pub fn shared() -> Self {
        static SHARED: OnceLock<HttpClient> = OnceLock::new();
        SHARED.get_or_init(|| Self::from_settings(None, true)).clone()
    }

    /// Creates a client with custom settings, such as certificates, proxies, a name resolver or a
    /// local address.
    ///
    /// The function `customize` receives the settings of the [shared](Self::shared) client. The
    /// function is called once for each tokio runtime that sends requests, when the runtime's first
    /// request is sent. The function is called again if a provider has its own connect timeout, if
    /// a connection that the server closed must be replaced, or if a server is on this machine. The
    /// function must not send requests itself. If the function panics, the turn fails with
    /// [`ErrorKind::Panic`].
    ///
    /// Two settings are applied after `customize` and cannot be changed. Redirects are not
    /// followed, because the key would be sent to the redirect target, except as documented for
    /// [`reqwest_client`](Self::reqwest_client). Requests to this machine (`localhost`,
    /// `127.0.0.1`) never use a proxy.
    ///
    /// A [retry policy](reqwest::ClientBuilder::retry) applies only to requests whose body is in
    /// one piece. The body of a longer request, from about 32 KB, is in several pieces, which it
    /// shares with other requests. Such a request is always sent again, at most twice, if an HTTP/2
    /// server reports that it did not process the request, which is also reqwest's default policy.
    ///
    /// Set keys on the provider, not as default headers of this client. The provider does not know
    /// the client's default headers, so it can neither mask keys in these headers in errors nor
    /// prevent such keys from being sent over plain HTTP.
    ///
    /// The signatures of this function and of [`reqwest_client`](Self::reqwest_client) are the only
    /// ones in the crate that contain a type from the underlying HTTP library,
    /// [`reqwest`](crate::http::reqwest).
    ///
    /// ```
    /// use turnstream::http::{HttpClient, reqwest};
    /// use turnstream::provider::Anthropic;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let proxy = reqwest::Proxy::all("http://proxy.example:3128")?;
    /// let http = HttpClient::from_builder(move |client| client.proxy(proxy.clone()));
    /// let model = Anthropic::new("claude-sonnet-4-5").with_http_client(http);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_builder(
        customize: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync + 'static,
    ) -> Self {
        Self::from_settings(Some(Box::new(customize)), true)
    }

    /// Creates a client that connects directly to servers and ignores the environment's proxy
    /// settings.
    pub fn without_proxy() -> Self {
        Self::from_settings(None, false)
    }

    /// Creates a client. If the reqwest client cannot be built, for example because certificates
    /// are missing, the first request returns the error.
    fn from_settings(customize: Option<Box<CustomizeFn>>, uses_proxies: bool) -> Self {
        let made = Mutex::default();
        let clients = Arc::new(ClientCache { customize, uses_proxies, cached: made });
        Self { clients, clock: Arc::new(SystemClock), response_hook: None }
    }

    /// Sets the clock used to interpret dates sent by a server, such as the date in a `retry-after`
    /// header.
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets a function that is called with the status and headers of every response, for example to
    /// read rate limits and request ids. The function runs while the turn is polled and should not
    /// block. If the function panics, the turn fails with [`ErrorKind::Panic`].
    ///
    /// ```
    /// use turnstream::http::HttpClient;
    ///
    /// let http = HttpClient::shared().with_response_hook(|head| {
    ///     if let Some(left) = head.header("x-ratelimit-remaining-requests") {
    ///         println!("{}: {left} requests left", head.host);
    ///     }
    /// });
    /// ```
    pub fn with_response_hook(
        mut self,
        hook: impl Fn(&ResponseHead<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.response_hook = Some(Arc::new(hook));
        self
    }

    /// Returns a reqwest client with these settings and connections, for a protocol whose requests
    /// you send yourself. [`Credential::authorize`](crate::http::Credential::authorize) returns the
    /// headers for such a request.
    ///
    /// The client is for requests to the origin of `url` from the current tokio runtime, which
    /// drives its connections. The client follows redirects with status 307 or 308 within the
    /// origin of the request. For any other redirect, it returns an error with a
    /// [`RefusedRedirect`] among its sources.
    ///
    /// ```
    /// use turnstream::http::HttpClient;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let url = "https://tickets.example/rpc";
    /// let client = HttpClient::shared().reqwest_client(url)?;
    /// let request = client.post(url).body("{}");
    /// # drop(request);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if `url` is not an `http` or
    /// `https` URL, and a [`Connect`](ErrorKind::Connect) error outside of a tokio runtime or if
    /// the client cannot be created.
    pub fn reqwest_client(&self, url: &str) -> Result<reqwest::Client, Error> {
        let to = Endpoint::exact(url)?;
        let current = connection_runtime::current_runtime()?;
        let (connection, redirects) = (ConnectionPolicy::Reuse, RedirectPolicy::FollowWithinOrigin);
        let (client, _) = self.clients.get_or_build(
            current.id(),
            None,
            connection,
            to.is_loopback(),
            redirects,
        )?;
        Ok(client)
    }

    /// Posts a body and waits for the head of the response. Dropping the returned future cancels
    /// the request.
    pub(crate) async fn post(&self, post: PostRequest<'_>) -> Result<Response, Error> {
        let PostRequest {
            endpoint: to,
            headers,
            body,
            connect_timeout,
            secrets,
            connection_policy: connection,
        } = post;
        let current = connection_runtime::current_runtime()?;
        let to_loopback = to.is_loopback();
        let (client, proxies) = self.clients.get_or_build(
            current.id(),
            connect_timeout,
            connection,
            to_loopback,
            RedirectPolicy::ReturnResponse,
        )?;
        let headers = header_map(headers, secrets)?;
        let runtime = ConnectionRuntime::for_handle(&current);
        let mut resends_left = if body.is_resent_by_reqwest() { 0 } else { MAX_RESENDS };
        let sent = loop {
            let request = client.request(Method::POST, to.url().clone()).headers(headers.clone());
            match runtime.drive(request.body(body.to_reqwest()).send()).await? {
                Err(error) if resends_left > 0 && is_unprocessed(&error) => resends_left -= 1,
                sent => break sent,
            }
        };
        let mask = |error: Error, secrets: &[Secret]| {
            error.map_text_and_sources(|text| mask_secrets(secrets, text))
        };
        let mut answer = sent.map_err(|error| {
            let closed = is_connection_closed(&error);
            let error = mask(sending_error(to, &proxies, error), secrets);
            // The `ConnectionClosed` source is added last, because masking the sources would remove
            // it.
            if closed { error.map_source(ConnectionClosed) } else { error }
        })?;
        if let Some(hook) = &self.response_hook {
            let host = to.host_and_port();
            let head = ResponseHead::new(&answer, &host, secrets);
            panic_to_error(ErrorKind::Panic, "the response hook", || hook(&head))?;
        }
        let (status, headers) = (answer.status().as_u16(), std::mem::take(answer.headers_mut()));
        // Only a proxy responds with "407 Proxy Authentication Required".
        let by_proxy = (status == 407).then(|| proxies.proxy_for(to)).flatten();
        let secrets = secrets.clone();
        let bytes =
            answer.bytes_stream().map_err(move |error| mask(reading_error(error), &secrets));
        let body = Body::new(bytes, runtime);
        Ok(Response {
            status,
            headers,
            received_at: self.clock.now(),
            answering_proxy: by_proxy,
            body,
        })
    }
}

/// Converts headers to reqwest's type. A header that is or contains a secret is marked as
/// sensitive, so reqwest neither shows its value nor uses it to compress later headers.
fn header_map(headers: &[&Header], secrets: &[Secret]) -> Result<HeaderMap, Error> {
    let wrong = |what: &str| {
        let message = format!("{what} has characters that HTTP does not allow");
        Error::new(ErrorKind::InvalidRequest, message)
    };
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, text) in headers {
        let is_in_text = |secret: &Secret| !secret.is_empty() && text.contains(secret.expose());
        let mut value = HeaderValue::from_str(text).map_err(|_| wrong("a key or header"))?;
        value.set_sensitive(is_secret_name(name) || secrets.iter().any(is_in_text));
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| wrong("the name of a header").with_parameter("headers"))?;
        map.insert(name, value);
    }
    Ok(map)
}

fn sending_error(to: &Endpoint, proxies: &Proxies, error: reqwest::Error) -> Error {
    let error = error.without_url();
    let proxy = proxies.proxy_for(to).map(|proxy| format!("the proxy {proxy}"));
    let (kind, what) = if is_tunnel_error(&error) {
        let proxy = proxy.unwrap_or_else(|| "a proxy".to_owned());
        (ErrorKind::Connect, format!("{proxy} did not connect to {}", to.host_and_port()))
    } else if let Some(proxy) = proxy.filter(|_| error.is_connect()) {
        (ErrorKind::Connect, format!("could not connect to {} through {proxy}", to.host_and_port()))
    } else if error.is_connect() {
        (ErrorKind::Connect, format!("could not connect to {}", to.host_and_port()))
    } else if error.is_timeout() {
        (ErrorKind::Timeout, format!("{} did not answer in time", to.host_and_port()))
    } else {
        (ErrorKind::Connect, format!("the request to {} failed", to.host_and_port()))
    };
    let is_unsent = is_tunnel_error(&error) || error.is_connect();
    let failure = Error::new(kind, format!("{what}: {}", root_cause(&error))).with_source(error);
    if is_unsent { failure.mark_unsent() } else { failure }
}

/// The source of an error caused by a connection that was closed before the first byte of the
/// response. Most likely, the server closed an idle connection.
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

/// Returns whether the error was caused by a connection that was closed before the first byte of
/// the response.
pub(crate) fn was_connection_closed(error: &Error) -> bool {
    error.find_source::<ConnectionClosed>().is_some()
}

/// Returns whether a reqwest error means that an open connection was closed. Returns `false` for
/// timeouts and for connections that were never opened.
fn is_connection_closed(error: &reqwest::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    if error.is_connect() || error.is_timeout() {
        return false;
    }
    source_chain(error).any(|error| {
        let by_hyper = error
            .downcast_ref::<hyper::Error>()
            .is_some_and(|error| error.is_incomplete_message() || error.is_closed());
        let by_the_system = error.downcast_ref::<std::io::Error>().is_some_and(|error| {
            matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
        });
        by_hyper || by_the_system
    })
}

/// The maximum number of times that a request which an HTTP/2 server did not process is sent again,
/// as in reqwest.
const MAX_RESENDS: usize = 2;

/// Returns whether an HTTP/2 server reported that it did not process the request: it closes the
/// connection, or it refused the stream. The same errors make reqwest send a request again.
///
/// <https://www.rfc-editor.org/rfc/rfc9113.html#section-8.7>
fn is_unprocessed(error: &reqwest::Error) -> bool {
    let error = source_chain(error).find_map(|error| error.downcast_ref::<h2::Error>());
    error.is_some_and(|error| match error.reason() {
        Some(h2::Reason::NO_ERROR) => error.is_remote() && error.is_go_away(),
        Some(h2::Reason::REFUSED_STREAM) => error.is_remote() && error.is_reset(),
        _ => false,
    })
}

fn reading_error(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let message = format!("the connection broke: {}", root_cause(&error));
    Error::new(ErrorKind::Connect, message).with_source(error)
}

/// Returns the message of the innermost source, which describes the cause; the outer errors only
/// add context.
fn root_cause(error: &reqwest::Error) -> String {
    source_chain(error).last().unwrap_or(error).to_string()
}

impl_debug!(HttpClient);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_marked_as_secret_in_a_header_of_any_name() {
        let header = |name: &'static str, value: &str| (name.into(), value.to_owned());
        let headers = [
            header("ocp-subscription", "key-12345678"),
            header("authorization", "Bearer other"),
            header("accept", "text/event-stream"),
        ];
        let headers: Vec<_> = headers.iter().collect();
        let map = header_map(&headers, &[Secret::new("key-12345678"), Secret::new("")]).unwrap();
        let is_marked = |name: &str| map[name].is_sensitive();
        assert!(is_marked("ocp-subscription") && is_marked("authorization"));
        assert!(!is_marked("accept"));
        assert!(!format!("{map:?}").contains("12345678"));
    }
}
