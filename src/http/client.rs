//! The client: settings, connections, and requests on their way.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::runtime::Id;

use crate::env::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, catch_panic, panic_to_error, source_chain};
use crate::http::connection_runtime::{self, ConnectionRuntime};
use crate::http::proxy::{Proxies, is_tunnel_error};
use crate::http::response::{Response, ResponseHead, ResponseHook};
use crate::http::{Body, Endpoint, Header, Secret, is_secret_name, mask_secrets};
use crate::lock::lock_ignoring_poison;

/// The time limit for a connection, unless the [`Timeouts`](crate::http::Timeouts) of a request have one.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests and keeps the connections. Cheap to clone; clones share the connections.
///
/// Redirects are not followed: a key is sent to the address that was given and no other.
#[derive(Clone)]
pub struct HttpClient {
    clients: Arc<ClientCache>,
    clock: Arc<dyn Clock>,
    response_hook: Option<Arc<ResponseHook>>,
}

/// A connection is driven by the runtime that it was made on, so that each has its own client: one
/// that has ended, or that nobody runs at the moment, would leave a shared connection silent.
struct ClientCache {
    customize: Option<Box<CustomizeFn>>,
    uses_proxies: bool,
    cached: Mutex<Vec<(ClientKey, CachedClient)>>,
}

type CustomizeFn = dyn Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync;

/// What a client is made for: the runtime that drives it, how long it waits for a connection, and
/// which connections it uses. reqwest takes these for a client and not for a request.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ClientKey {
    runtime: Id,
    connect_timeout: Duration,
    connection_policy: ConnectionPolicy,
    /// Whether it goes to servers of this machine, without any proxy.
    is_loopback: bool,
}

type CachedClient = Result<(reqwest::Client, Proxies), Error>;

/// So many clients are remembered, the newest.
const MAX_CACHED_CLIENTS: usize = 32;

/// Which connection a request goes out on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPolicy {
    /// One that is open and not in use, or else a new one.
    Reuse,
    /// A new one: the server may have closed those that are open.
    OpenNew,
}

impl ClientCache {
    fn get_or_build(
        &self,
        runtime: Id,
        connect_timeout: Option<Duration>,
        connection: ConnectionPolicy,
        to_loopback: bool,
    ) -> CachedClient {
        let connect_timeout = connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT);
        let purpose = ClientKey {
            runtime,
            connect_timeout,
            connection_policy: connection,
            is_loopback: to_loopback,
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
        settings = settings.redirect(reqwest::redirect::Policy::none());
        if purpose.is_loopback || !self.uses_proxies {
            settings = settings.no_proxy();
        }
        if purpose.connection_policy == ConnectionPolicy::OpenNew {
            settings = settings.pool_max_idle_per_host(0);
        }
        let shown = format!("{settings:?}");
        let client = settings.build().map_err(|error| {
            let message = format!("no HTTP client could be made: {}", root_cause(&error));
            let error = Error::new(ErrorKind::Connect, message).with_source(error);
            // Nothing about it changes by itself.
            error.with_retryable(false)
        })?;
        let proxies = Proxies::from_debug_output(&shown, &client);
        Ok((client, proxies))
    }
}

/// One request, as it is sent.
pub(crate) struct PostRequest<'a> {
    pub(crate) endpoint: &'a Endpoint,
    /// Of two of the same name the later one is sent.
    pub(crate) headers: &'a [&'a Header],
    pub(crate) body: Bytes,
    /// How long a connection may take, if not as long as the client says.
    pub(crate) connect_timeout: Option<Duration>,
    /// What no error shows.
    pub(crate) secrets: &'a Arc<[Secret]>,
    pub(crate) connection_policy: ConnectionPolicy,
}

impl HttpClient {
    /// The client that all providers of this process share unless told otherwise.
    pub fn shared() -> Self {
        static SHARED: OnceLock<HttpClient> = OnceLock::new();
        SHARED.get_or_init(|| Self::from_settings(None, true)).clone()
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
    /// let model = Anthropic::new("claude-sonnet-4-5").with_http_client(http);
    /// # Ok(())
    /// # }
    /// ```
    pub fn customized(
        customize: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync + 'static,
    ) -> Self {
        Self::from_settings(Some(Box::new(customize)), true)
    }

    /// A client of its own that goes straight to its servers, whatever proxy the environment names.
    pub fn without_proxy() -> Self {
        Self::from_settings(None, false)
    }

    /// What goes wrong in making one, for example no certificates, is told by the first request.
    fn from_settings(customize: Option<Box<CustomizeFn>>, uses_proxies: bool) -> Self {
        let made = Mutex::default();
        let clients = Arc::new(ClientCache { customize, uses_proxies, cached: made });
        Self { clients, clock: Arc::new(SystemClock), response_hook: None }
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
        self.response_hook = Some(Arc::new(hook));
        self
    }

    /// The transport's client for requests to `to` that are sent from this runtime.
    #[cfg(feature = "mcp")]
    pub(crate) fn reqwest_client(&self, to: &Endpoint) -> Result<reqwest::Client, Error> {
        let current = connection_runtime::current_runtime()?;
        let policy = ConnectionPolicy::Reuse;
        let (client, _) =
            self.clients.get_or_build(current.id(), None, policy, to.is_loopback())?;
        Ok(client)
    }

    /// Posts a body and waits for the head of the answer. Dropping the future cancels the request.
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
        let (client, proxies) =
            self.clients.get_or_build(current.id(), connect_timeout, connection, to_loopback)?;
        let headers = header_map(headers, secrets)?;
        let sending =
            client.request(Method::POST, to.url().clone()).headers(headers).body(body).send();
        let runtime = ConnectionRuntime::for_handle(&current);
        let sent = runtime.drive(sending).await?;
        let mask = |error: Error, secrets: &[Secret]| {
            error.map_text_and_sources(|text| mask_secrets(secrets, text))
        };
        let mut answer = sent.map_err(|error| {
            let closed = is_connection_closed(&error);
            let error = mask(sending_error(to, &proxies, error), secrets);
            // Marked last, so that a source that is rewritten does not hide the mark.
            if closed { error.map_source(ConnectionClosed) } else { error }
        })?;
        if let Some(hook) = &self.response_hook {
            let host = to.host_and_port();
            let head = ResponseHead::new(&answer, &host, secrets);
            panic_to_error(ErrorKind::Panic, "the response hook", || hook(&head))?;
        }
        let (status, headers) = (answer.status().as_u16(), std::mem::take(answer.headers_mut()));
        // "407 Proxy Authentication Required" comes from no one else.
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

/// The headers as the transport takes them. One that is secret, or has a secret in it, is marked: the
/// transport shows no such value, and keeps none for the compression of later headers.
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
pub(crate) fn was_connection_closed(error: &Error) -> bool {
    error.find_source::<ConnectionClosed>().is_some()
}

/// The same of reqwest's error. Connections that were never made, and time-outs, are not meant.
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

fn reading_error(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let message = format!("the connection broke: {}", root_cause(&error));
    Error::new(ErrorKind::Connect, message).with_source(error)
}

/// The innermost source says what happened; those around it say it happened.
fn root_cause(error: &reqwest::Error) -> String {
    source_chain(error).last().unwrap_or(error).to_string()
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

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
