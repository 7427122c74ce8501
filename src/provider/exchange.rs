//! One request and its answer over HTTP: encode, send, decode.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::error::{AuthProblem, Error, ErrorKind};
use crate::http::{
    Body, Connection, Endpoint, HttpClient, Post, Response, Secret, Timeouts, masked, was_closed,
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

/// What every provider over HTTP is made of.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) http: HttpClient,
    pub(super) endpoint: Endpoint,
    pub(super) key: Option<Secret>,
    pub(super) timeouts: Timeouts,
    pub(super) retry: Policy,
    /// Sent beside those that the wire always has.
    pub(super) headers: Vec<(&'static str, String)>,
}

/// How a wire wants its key.
pub(super) type KeyHeader = fn(&Secret) -> (&'static str, String);

impl Caller {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        let (http, timeouts) = (HttpClient::shared(), Timeouts::default());
        let retry = Policy::new(is_retried);
        Self { http, endpoint, key: None, timeouts, retry, headers: Vec::new() }
    }

    /// A source that sends nothing before its first poll, which is also when `encode` runs. Each
    /// attempt has a decoder of its own.
    pub(super) fn ask<D: Decode + Send + Unpin + 'static>(
        self,
        headers: &'static [(&'static str, &'static str)],
        key_header: KeyHeader,
        encode: impl FnOnce() -> Result<Vec<u8>, Error> + Send + Unpin + 'static,
        decoder: impl Fn() -> D + Send + Unpin + 'static,
        allowed: Retries,
    ) -> impl TurnSource + Send + 'static {
        let mut secrets = self.endpoint.secrets();
        secrets.extend(self.key.clone());
        let policy = self.retry.clone();
        let attempts = Exchanges {
            caller: self,
            headers,
            key_header,
            body: Encoded::NotYet(encode),
            decoder,
            secrets: secrets.into(),
            first: match allowed.is_on_new_connection() {
                true => Connection::New,
                false => Connection::Any,
            },
        };
        Retrying::new(attempts, policy, allowed)
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
    body: Encoded<E>,
    decoder: M,
    secrets: Arc<[Secret]>,
    /// What the first attempt goes out on.
    first: Connection,
}

/// The body of the request, which is the same in each attempt.
enum Encoded<E> {
    NotYet(E),
    Bytes(Bytes),
    /// It cannot be encoded, or is not needed any more.
    Gone,
}

impl<D, E, M> Attempts for Exchanges<E, M>
where
    D: Decode + Unpin,
    E: FnOnce() -> Result<Vec<u8>, Error>,
    M: Fn() -> D,
{
    type Attempt = Exchange<D>;

    fn begin(&mut self, failed: Option<&Error>) -> Exchange<D> {
        let body = match std::mem::replace(&mut self.body, Encoded::Gone) {
            Encoded::NotYet(encode) => caught_encode(encode).map(Bytes::from),
            Encoded::Bytes(bytes) => Ok(bytes),
            Encoded::Gone => Err(Error::new(ErrorKind::Other, "the request was given up")),
        };
        if let Ok(bytes) = &body {
            self.body = Encoded::Bytes(bytes.clone());
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
        self.body = Encoded::Gone;
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
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned()));
    let headers: Vec<_> = headers.chain(caller.headers).collect();
    let key = caller.key.as_ref().filter(|key| !key.is_empty()).map(key_header);
    let with_key = key.is_some();
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
    catch_unwind(AssertUnwindSafe(f))
        .unwrap_or_else(|payload| Err(Error::panic("the encoder", &*payload)))
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
            failure::of_status(answer.status, &said, answer.now)
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
