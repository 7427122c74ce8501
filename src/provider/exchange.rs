//! One request and its answer over HTTP: encode, send, decode.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::error::{AuthProblem, Error, ErrorKind, catch_panic};
use crate::http::{
    Body, Connection, Endpoint, Header, HttpClient, Post, Response, Secret, Timeouts, is_secret,
    masked, was_closed,
};
use crate::provider::decode::{Decode, Decoding};
use crate::provider::failure;
use crate::provider::patience::Patience;
use crate::provider::retry::{Attempts, Policy, Retrying};
use crate::request::Retries;
use crate::stream::TurnSource;
use crate::turn::{PartialTurn, TurnBuilder};

/// How much of an answer that is no stream is read, for its words.
const MOST_OF_A_REFUSAL: usize = 64 << 10;

/// The settings of every provider over HTTP.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) http: HttpClient,
    pub(super) endpoint: Endpoint,
    pub(super) key: Option<Secret>,
    pub(super) timeouts: Timeouts,
    pub(super) retry: Policy,
    /// Sent beside those that the wire always has, and instead of those of the same name.
    headers: Vec<Header>,
    /// The host of the vendor's own address, which does not answer without a key.
    vendor: Option<String>,
    /// Whether a key may be sent where others can read it.
    pub(super) plain_http: bool,
}

/// The body of a request, and a header that goes with it.
pub(super) struct Encoded {
    pub(super) body: Vec<u8>,
    pub(super) header: Option<(&'static str, String)>,
}

impl From<Vec<u8>> for Encoded {
    fn from(body: Vec<u8>) -> Self {
        Self { body, header: None }
    }
}

/// The headers that say what the body is, and what is taken for an answer.
const OF_THE_TRANSPORT: [&str; 6] = [
    "content-type",
    "content-length",
    "transfer-encoding",
    "content-encoding",
    "accept",
    "accept-encoding",
];

/// How a wire wants its key.
pub(super) type KeyHeader = fn(&Secret) -> (&'static str, String);

impl Caller {
    /// Settings for the vendor's own address.
    pub(super) fn new(vendor: Endpoint) -> Self {
        Self {
            http: HttpClient::shared(),
            key: None,
            timeouts: Timeouts::default(),
            retry: Policy::new(is_retried),
            headers: Vec::new(),
            vendor: vendors_host(&vendor),
            plain_http: false,
            endpoint: vendor,
        }
    }

    /// Sets the vendor's own address.
    pub(super) fn set_vendor(&mut self, vendor: &Endpoint) {
        self.vendor = vendors_host(vendor);
    }

    /// Whether requests go to the vendor itself.
    pub(super) fn is_at_vendor(&self) -> bool {
        self.vendor.as_deref() == Some(self.endpoint.host_name())
    }

    /// Sets a header, instead of one of the same name.
    pub(super) fn set_header(&mut self, name: &str, value: &str) {
        let name = name.to_ascii_lowercase();
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name.into(), value.to_owned()));
    }

    /// Adds to the values of a header.
    pub(super) fn add_header(&mut self, name: &'static str, value: &str) {
        match self.headers.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) if values.is_empty() => value.clone_into(values),
            Some((_, values)) => {
                let is_new = values.split(',').all(|known| known.trim() != value);
                if is_new && !value.is_empty() {
                    *values = format!("{values},{value}");
                }
            }
            None => self.headers.push((name.into(), value.to_owned())),
        }
    }

    /// What of the request is not to be shown, wherever it comes back.
    fn secrets(&self) -> Vec<Secret> {
        let mut secrets = self.endpoint.secrets();
        secrets.extend(self.key.clone());
        for (_, value) in self.headers.iter().filter(|(name, _)| is_secret(name)) {
            secrets.push(Secret::new(value));
            // Of `Bearer abc` and `session=abc; user=def`, also each part, if it is no short word.
            let parts = value.split([' ', ';', ',']).flat_map(|part| {
                part.split_once('=').map_or([part, part], |(_, value)| [part, value])
            });
            secrets.extend(parts.filter(|part| part.len() >= 8).map(Secret::new));
        }
        secrets
    }

    fn has_key(&self) -> bool {
        let by_header =
            self.headers.iter().any(|(name, value)| is_secret(name) && !value.is_empty());
        let by_field = self.key.as_ref().is_some_and(|key| !key.is_empty());
        by_header || by_field || self.endpoint.has_credentials()
    }

    /// What is wrong with the settings.
    fn check(&self) -> Result<(), Error> {
        let to = &self.endpoint;
        if let Some((name, _)) =
            self.headers.iter().find(|(name, _)| OF_THE_TRANSPORT.contains(&&**name))
        {
            let message = format!("the header `{name}` is the transport's own and cannot be set");
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter("headers"));
        }
        if self.is_at_vendor() && !self.has_key() {
            let message = format!("{} wants a key, and none is set", to.host());
            return Err(Error::new(ErrorKind::Auth, message).with_auth(AuthProblem::MissingKey));
        }
        if self.has_key() && to.is_plain() && !to.is_loopback() && !self.plain_http {
            let message = format!(
                "a key is not sent to {} over plain http, where others can read it: use https, or \
                 allow it with `allow_plain_http`",
                to.host()
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter("base_url"));
        }
        Ok(())
    }

    /// A source that sends nothing before its first poll, which is also when `encode` runs. Each
    /// attempt has a decoder of its own.
    pub(super) fn ask<D, R>(
        self,
        headers: &'static [(&'static str, &'static str)],
        key_header: KeyHeader,
        encode: impl FnOnce() -> Result<R, Error> + Send + Unpin + 'static,
        decoder: impl Fn() -> D + Send + Unpin + 'static,
        allowed: Retries,
    ) -> impl TurnSource + Send + 'static
    where
        D: Decode + Send + Unpin + 'static,
        R: Into<Encoded> + 'static,
    {
        let secrets = self.secrets().into();
        let policy = self.retry.clone();
        let attempts = Exchanges {
            caller: self,
            headers,
            key_header,
            body: RequestBody::NotYet(encode),
            decoder,
            secrets,
            first: match allowed.is_on_new_connection() {
                true => Connection::New,
                false => Connection::Any,
            },
        };
        Retrying::new(attempts, policy, allowed)
    }
}

/// The host of a vendor's address. One over plain http is that of a server of the user's.
fn vendors_host(vendor: &Endpoint) -> Option<String> {
    (!vendor.is_plain()).then(|| vendor.host_name().to_owned())
}

/// Of the headers, whose values may be secret, only the names are shown.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Caller")
            .field("endpoint", &self.endpoint)
            .field("key", &self.key)
            .field("timeouts", &self.timeouts)
            .field("retry", &self.retry)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

/// The settings of the transport, the same for each provider that has a [`Caller`].
macro_rules! transport_settings {
    ($provider:ident) => {
        impl $provider {
            /// Sets the client; the one that all providers share unless set.
            pub fn with_http(mut self, http: crate::http::HttpClient) -> Self {
                self.caller.http = http;
                self
            }

            /// Sends a header with each request: of a gateway, of a proxy, a feature of the vendor's.
            ///
            /// It replaces one of the same name that the provider or an earlier call has set, that of the
            /// key included. The value of one whose name has a word such as `key`, `token`, `secret` or
            /// `authorization` is treated as a key: no error shows it, and it goes over plain http only to
            /// this machine.
            ///
            /// A name or a value that HTTP does not allow, and a header that describes the body, is an
            /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) of the turn.
            pub fn with_header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
                self.caller.set_header(name.as_ref(), value.as_ref());
                self
            }

            /// Allows that the key is sent over plain http to another machine, for example in a network
            /// of your own. Everyone on the way can read it.
            ///
            /// Without this, such a request is an
            /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) of the turn. Requests to this machine
            /// (`localhost`, `127.0.0.1`) and requests without a key are not affected.
            pub fn allow_plain_http(mut self) -> Self {
                self.caller.plain_http = true;
                self
            }

            /// Sets the time limits. They hold for each attempt.
            pub fn with_timeouts(mut self, timeouts: crate::http::Timeouts) -> Self {
                self.caller.timeouts = timeouts;
                self
            }

            /// Sets how many times a request is sent, and how long to wait in between: at most 3
            /// times by default.
            ///
            /// Failed connections and the statuses 408, 409, 429 and 5xx are retried, unless the
            /// server says in `x-should-retry` or in words that it is of no use; nothing is retried
            /// once the model has begun its answer. The server's own `retry-after` is obeyed up to
            /// [`Backoff::retry_after_cap`](crate::provider::Backoff::retry_after_cap). A connection
            /// that the server closed while it was not in use is replaced at once, without a wait.
            /// Each wait is reported by a [`Retrying`](crate::TurnEvent::Retrying) before it begins.
            ///
            /// [`Retry`](crate::provider::Retry), or a provider that is asked next, takes the place
            /// of these retries.
            pub fn with_backoff(mut self, backoff: crate::provider::Backoff) -> Self {
                self.caller.retry.backoff = backoff;
                self
            }

            /// Sends each request once: its first error is the turn's.
            pub fn without_retries(self) -> Self {
                let backoff = crate::provider::Backoff { attempts: 1, ..Default::default() };
                self.with_backoff(backoff)
            }

            /// Sets where the jitter of the waits comes from.
            pub fn with_random(mut self, random: impl crate::env::Random + 'static) -> Self {
                self.caller.retry.random = std::sync::Arc::new(random);
                self
            }
        }
    };
}

pub(super) use transport_settings;

/// The errors that are retried by default, as the SDKs of the vendors do it: failed connections and
/// the statuses 408, 409, 429 and 5xx, unless the body says that the cause is permanent. What the
/// vendor's `x-should-retry` says counts first.
///
/// A time-out of this crate's own is not among them, since the provider may be at work, and neither
/// is a turn that broke off.
fn is_retried(error: &Error) -> bool {
    use ErrorKind::{Connect, Overloaded, RateLimited, Server, Timeout, Unsupported};
    if let Some(told) = error.retryable_as_told() {
        return told;
    }
    let (kind, may_pass) = (error.kind(), error.is_retryable());
    match error.status() {
        Some(status @ (408 | 409 | 429 | 500..)) => {
            may_pass || (status, kind) == (501, Unsupported)
        }
        Some(_) => false,
        None => match kind {
            Connect | RateLimited | Overloaded | Server => may_pass,
            Timeout => may_pass && error.is_in_words_of_the_server(),
            _ => false,
        },
    }
}

/// The attempts at one turn.
struct Exchanges<E, M> {
    caller: Caller,
    headers: &'static [(&'static str, &'static str)],
    key_header: KeyHeader,
    body: RequestBody<E>,
    decoder: M,
    secrets: Arc<[Secret]>,
    /// What the first attempt goes out on.
    first: Connection,
}

/// The body of the request, which is the same in each attempt.
enum RequestBody<E> {
    NotYet(E),
    Bytes(Bytes),
    /// It cannot be encoded, or is not needed any more.
    Gone,
}

impl<D, E, M, R> Attempts for Exchanges<E, M>
where
    D: Decode + Unpin,
    E: FnOnce() -> Result<R, Error>,
    R: Into<Encoded>,
    M: Fn() -> D,
{
    type Attempt = Exchange<D>;

    fn begin(&mut self, failed: Option<&Error>) -> Exchange<D> {
        let body = match std::mem::replace(&mut self.body, RequestBody::Gone) {
            RequestBody::NotYet(encode) => self.encoded(encode),
            RequestBody::Bytes(bytes) => Ok(bytes),
            RequestBody::Gone => Err(Error::new(ErrorKind::Other, "the request was given up")),
        };
        if let Ok(bytes) = &body {
            self.body = RequestBody::Bytes(bytes.clone());
        }
        let connection = match failed {
            None => self.first,
            Some(error) if was_closed(error) => Connection::New,
            Some(_) => Connection::Any,
        };
        let sending = send(
            self.caller.clone(),
            self.headers,
            self.key_header,
            body,
            connection,
            Arc::clone(&self.secrets),
        );
        let on_its_way = OnItsWay::Sending(sending.boxed(), Some((self.decoder)()));
        Exchange { on_its_way, secrets: Arc::clone(&self.secrets) }
    }

    fn is_stale(&self, error: &Error) -> bool {
        was_closed(error)
    }

    fn begun(&mut self) {
        self.body = RequestBody::Gone;
    }
}

impl<E, M> Exchanges<E, M> {
    fn encoded<R: Into<Encoded>>(
        &mut self,
        encode: impl FnOnce() -> Result<R, Error>,
    ) -> Result<Bytes, Error> {
        self.caller.check()?;
        let Encoded { body, header } = caught_encode(encode)?.into();
        if let Some((name, value)) = header {
            self.caller.add_header(name, &value);
        }
        Ok(body.into())
    }
}

/// Sends a request and waits for an answer that is a stream.
async fn send(
    caller: Caller,
    headers: &'static [(&'static str, &'static str)],
    key_header: KeyHeader,
    body: Result<Bytes, Error>,
    connection: Connection,
    secrets: Arc<[Secret]>,
) -> Result<Answer, Error> {
    let body = body?;
    let with_key = caller.has_key();
    let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).to_owned()));
    let headers: Vec<_> = headers.chain(caller.headers).collect();
    let key = caller.key.as_ref().filter(|key| !key.is_empty()).map(key_header);
    let began = Instant::now();
    let patience = Patience::new(caller.timeouts, began);
    let (to, timeouts) = (&caller.endpoint, &caller.timeouts);
    let (headers, secrets) = (&headers, &secrets);
    let post = Post { to, headers, key, body, timeouts, began, secrets, connection };
    let answering = async { stream_of(caller.http.post(post).await?, with_key).await };
    let (body, request_id) = match patience.until() {
        Some(at) => {
            tokio::time::timeout_at(at, answering).await.unwrap_or_else(|_| Err(patience.over()))?
        }
        None => answering.await?,
    };
    Ok(Answer { body, request_id, patience })
}

/// One request on its way. No error that leaves it shows what is secret, wherever it comes from.
struct Exchange<D> {
    on_its_way: OnItsWay<D>,
    secrets: Arc<[Secret]>,
}

impl<D: Decode + Unpin> TurnSource for Exchange<D> {
    fn poll_turn(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> Poll<Option<Result<(), Error>>> {
        let this = &mut *self;
        let polled = ready!(Pin::new(&mut this.on_its_way).poll_turn(cx, turn));
        let hide = |text: &str| masked(&this.secrets, text);
        Poll::Ready(polled.map(|pushed| {
            pushed.map_err(|error| match PartialTurn::of(&error) {
                // What the model said is not the server's, and the cause was rewritten before.
                Some(_) => error.reworded(hide),
                None => error.rewritten(hide),
            })
        }))
    }
}

/// An answer that is a stream.
struct Answer {
    body: Body,
    request_id: Option<String>,
    patience: Patience,
}

enum OnItsWay<D> {
    Sending(BoxFuture<'static, Result<Answer, Error>>, Option<D>),
    Answering(Box<Decoding<Body, D>>, Option<String>),
}

impl<D: Decode + Unpin> TurnSource for OnItsWay<D> {
    fn poll_turn(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> Poll<Option<Result<(), Error>>> {
        let this = &mut *self;
        if let Self::Sending(sending, decoder) = this {
            let answer = match ready!(sending.as_mut().poll(cx)) {
                Ok(answer) => answer,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            // Law: the decoder is taken here and nowhere else.
            let Some(decoder) = decoder.take() else { return Poll::Ready(None) };
            let decoding = Decoding::new(answer.body, decoder).with_patience(answer.patience);
            *this = Self::Answering(Box::new(decoding), answer.request_id);
        }
        let Self::Answering(decoding, request_id) = this else { return Poll::Ready(None) };
        let polled = ready!(Pin::new(&mut **decoding).poll_turn(cx, turn));
        Poll::Ready(polled.map(|pushed| {
            pushed.map_err(|error| match (error.request_id(), request_id.take()) {
                (None, Some(id)) => error.with_request_id(id),
                _ => error,
            })
        }))
    }
}

/// Runs an encoder; a panic in it is an error of the turn.
fn caught_encode<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_panic(f).unwrap_or_else(|message| Err(Error::panic("the encoder", &message)))
}

/// Gives the body of an answer that is a stream, or the error that it is instead.
async fn stream_of(mut answer: Response, with_key: bool) -> Result<(Body, Option<String>), Error> {
    let request_id = answer.request_id();
    let error = match (answer.is_success(), answer.encoding().map(str::to_owned)) {
        (true, None) => {
            // What a body is said to be is often wrong. Its first byte tells: no line of a stream
            // of events that anybody sends begins so.
            let first = answer.body.first_byte().await;
            let what = match first {
                Some(b'{' | b'[') => "one JSON document",
                Some(b'<') => "a web page",
                Some(_) | None => return Ok((answer.body, request_id)),
            };
            let said = answer.text(MOST_OF_A_REFUSAL).await;
            match failure::tells_of_error(&said) {
                true => failure::of_body(&said, answer.now),
                false => no_stream(what),
            }
        }
        (true, Some(encoding)) => {
            no_stream(&format!("a body packed as `{encoding}`, which was not asked for,"))
        }
        (false, None) => {
            let said = answer.text(MOST_OF_A_REFUSAL).await;
            let error = failure::of_status(answer.status, &said, answer.now);
            match &answer.by_proxy {
                Some(proxy) => error.rewritten(|text| {
                    text.replacen(
                        "the provider answered",
                        &format!("the proxy {proxy} answered"),
                        1,
                    )
                }),
                None => error,
            }
        }
        // Its words cannot be read.
        (false, Some(_)) => failure::of_status(answer.status, "", answer.now),
    };
    let error = with_headers(error, &answer);
    Err(match error.kind() {
        ErrorKind::Auth if !with_key && answer.status == 401 => {
            error.with_auth(AuthProblem::MissingKey)
        }
        _ => error,
    })
}

fn no_stream(what: &str) -> Error {
    let message = format!("the provider answered with {what} instead of a stream");
    Error::new(ErrorKind::Protocol, message)
}

/// Adds what the headers say: in full about waiting, and else what the body did not say better.
fn with_headers(mut error: Error, answer: &Response) -> Error {
    if let Some(retryable) = answer.should_retry().filter(|_| !answer.is_success()) {
        error = error.with_retryable(retryable);
    }
    let may_be_sent_again = error.kind().is_transient() || is_retried(&error);
    let (scope, full_again) = match error.kind() {
        ErrorKind::RateLimited => answer.used_up(),
        _ => (None, None),
    };
    // The longest that the headers say, or else what the words of the body say.
    let wait = answer.retry_after().filter(|_| may_be_sent_again);
    if let Some(wait) = wait.max(full_again).or(error.retry_after()) {
        error = error.with_retry_after(wait);
    }
    if let (Some(scope), None) = (scope, error.scope()) {
        error = error.with_scope(scope);
    }
    match answer.request_id() {
        Some(id) => error.with_request_id(id),
        None => error,
    }
}
