//! The one file that knows reqwest.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::TryStreamExt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use tokio::runtime;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::http::{Body, Secret, Timeouts, retry_after};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// How long the words of an error are waited for, once its status is known.
const REFUSAL: Duration = Duration::from_millis(500);

/// Sends requests and keeps the connections. Cheap to clone; clones share the connections.
///
/// Redirects are not followed: a key is sent to the address that was given and no other.
#[derive(Clone)]
pub struct HttpClient(Arc<Clients>);

/// A connection is driven by the runtime that it was made on, so that each has its own client: one
/// that has ended, or that nobody runs at the moment, would leave a shared connection silent.
struct Clients {
    make: fn(Duration) -> reqwest::ClientBuilder,
    connect_timeout: Duration,
    made: Mutex<Vec<(runtime::Id, Result<reqwest::Client, Error>)>>,
}

/// So many runtimes are remembered, the newest.
const RUNTIMES: usize = 16;

impl Clients {
    fn here(&self) -> Result<reqwest::Client, Error> {
        let id = runtime::Handle::current().id();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = made.iter().find(|(of, _)| *of == id) {
            return client.clone();
        }
        let client = (self.make)(self.connect_timeout).build().map_err(|error| {
            let message = format!("no HTTP client could be made: {}", root_cause(&error));
            Error::new(ErrorKind::Connect, message).with_source(error)
        });
        if made.len() == RUNTIMES {
            drop(made.remove(0));
        }
        made.push((id, client.clone()));
        client
    }
}

/// An address that requests go to. Its user name and password, if any, are never shown.
#[derive(Clone)]
pub(crate) struct Endpoint(Url);

/// An answer whose head has come.
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The provider's id of the request.
    pub request_id: Option<String>,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// What the body is said to be.
    pub content_type: Option<String>,
    /// The body.
    pub body: Body,
}

impl HttpClient {
    /// The client that all providers of this process share unless told otherwise.
    pub fn shared() -> Self {
        static SHARED: OnceLock<HttpClient> = OnceLock::new();
        SHARED.get_or_init(|| Self::of(Self::settings, CONNECT)).clone()
    }

    /// A client of its own that goes straight to its servers, whatever proxy the environment names.
    pub fn without_proxy() -> Self {
        Self::of(|timeout| Self::settings(timeout).no_proxy(), CONNECT)
    }

    /// A client of its own that gives up on a connection after `timeout`; 10 seconds is usual.
    pub fn with_connect_timeout(timeout: Duration) -> Self {
        Self::of(Self::settings, timeout)
    }

    /// What goes wrong in making one, for example no certificates, is told by the first request.
    fn of(make: fn(Duration) -> reqwest::ClientBuilder, connect_timeout: Duration) -> Self {
        Self(Arc::new(Clients { make, connect_timeout, made: Mutex::default() }))
    }

    fn settings(connect_timeout: Duration) -> reqwest::ClientBuilder {
        reqwest::Client::builder()
            .connect_timeout(connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .user_agent(concat!("turnstream/", env!("CARGO_PKG_VERSION")))
    }

    /// Posts JSON and waits for the head of the answer. Dropping the future cancels the request.
    pub(crate) async fn post(
        &self,
        to: &Endpoint,
        headers: &[(&'static str, String)],
        key: Option<(&'static str, String)>,
        body: Vec<u8>,
        timeouts: Timeouts,
    ) -> Result<Response, Error> {
        let client = self.0.here()?;
        let mut map = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        map.insert(reqwest::header::CONTENT_TYPE, json);
        map.insert(reqwest::header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        for (name, value) in headers {
            map.insert(HeaderName::from_static(name), header_value(value)?);
        }
        if let Some((name, value)) = key {
            let mut value = header_value(&value)?;
            value.set_sensitive(true);
            map.insert(HeaderName::from_static(name), value);
        }
        let deadline = crate::http::body::after(timeouts.first_byte);
        let request = client.request(Method::POST, to.0.clone()).headers(map).body(body);
        let sent = tokio::time::timeout_at(deadline, request.send()).await;
        let Ok(sent) = sent else {
            let message = format!("{} did not answer in time", to.host());
            return Err(Error::new(ErrorKind::Timeout, message));
        };
        let answer = sent.map_err(|error| sending_failed(to, error))?;
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let request_id = ["request-id", "x-request-id"].iter().find_map(|name| header(name));
        Ok(Response {
            status: answer.status().as_u16(),
            request_id: request_id.map(str::to_owned),
            retry_after: retry_after(header("retry-after-ms"), header("retry-after")),
            content_type: header("content-type").map(str::to_owned),
            body: Body::new(answer.bytes_stream().map_err(reading_failed), deadline, timeouts.idle),
        })
    }
}

impl Response {
    /// Reads the body to its end, or to `most` bytes.
    pub(crate) async fn text(&mut self, most: usize) -> String {
        let mut bytes: Vec<u8> = Vec::new();
        let until = Instant::now() + REFUSAL;
        // What cannot be read, or not soon, is left out: this is for the words of an error.
        while bytes.len() < most
            && let Ok(Ok(Some(piece))) = tokio::time::timeout_at(until, self.body.try_next()).await
        {
            let room = most - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        String::from_utf8_lossy(&bytes).into_owned()
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
            Url::parse(base.trim()).map_err(|error| wrong(&format!("is none: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("must begin with http:// or https://"));
        }
        let joined = format!("{}{path}", url.path().trim_end_matches('/'));
        url.set_path(&joined);
        url.set_fragment(None);
        Ok(Self(url))
    }

    /// What of the address is not to be shown: its password and the values of its query.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        let query = self.0.query_pairs().map(|(_, value)| Secret::new(value));
        self.0.password().map(Secret::new).into_iter().chain(query).collect()
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

fn sending_failed(to: &Endpoint, error: reqwest::Error) -> Error {
    let error = error.without_url();
    let (kind, what) = if error.is_connect() {
        (ErrorKind::Connect, format!("could not connect to {}", to.host()))
    } else if error.is_timeout() {
        (ErrorKind::Timeout, format!("{} did not answer in time", to.host()))
    } else {
        (ErrorKind::Connect, format!("the request to {} failed", to.host()))
    };
    Error::new(kind, format!("{what}: {}", root_cause(&error))).with_source(error)
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

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

/// A body for tests below this floor's users.
#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

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
    fn what_is_no_http_url_is_refused() {
        for base in ["", "localhost:8080", "ftp://h", "http://"] {
            let error = Endpoint::new(base, "/v1").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{base}");
        }
    }

    #[test]
    fn an_idle_body_times_out_and_a_busy_one_does_not() {
        use futures::StreamExt;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let idle = Duration::from_secs(10);
            let pieces = futures::stream::unfold(0, |n| async move {
                if n < 5 {
                    tokio::time::sleep(Duration::from_secs(9)).await;
                } else {
                    std::future::pending::<()>().await;
                }
                Some((Ok(Bytes::from_static(b"x")), n + 1))
            });
            let mut body = Body::new(pieces, Instant::now() + idle, idle);
            let began = Instant::now();
            for _ in 0..5 {
                assert!(body.next().await.unwrap().is_ok());
            }
            let error = body.next().await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert_eq!(began.elapsed(), Duration::from_secs(55));
            assert!(body.next().await.is_none());
        });
    }
}
