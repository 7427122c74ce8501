//! One request and its answer over HTTP: encode, send, decode.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, ErrorKind};
use crate::http::{Body, Endpoint, HttpClient, Response, Secret, Timeouts};
use crate::provider::decode::{Decode, Decoding};
use crate::provider::failure;
use crate::stream::TurnSource;
use crate::turn::TurnBuilder;

/// How much of an answer that is no stream is read, for its words.
const MOST_OF_A_REFUSAL: usize = 64 << 10;

/// What every provider over HTTP is made of.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) http: HttpClient,
    pub(super) endpoint: Endpoint,
    pub(super) key: Option<Secret>,
    pub(super) timeouts: Timeouts,
    /// Sent beside those that the wire always has.
    pub(super) headers: Vec<(&'static str, String)>,
}

/// How a wire wants its key.
pub(super) type KeyHeader = fn(&Secret) -> (&'static str, String);

impl Caller {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        let (http, timeouts) = (HttpClient::shared(), Timeouts::default());
        Self { http, endpoint, key: None, timeouts, headers: Vec::new() }
    }

    /// A source that sends nothing before its first poll. `encode` runs then, too.
    pub(super) fn ask<D: Decode>(
        self,
        headers: &'static [(&'static str, &'static str)],
        key_header: KeyHeader,
        encode: impl FnOnce() -> Result<Vec<u8>, Error> + Send + 'static,
        decoder: D,
    ) -> Exchange<D> {
        let mut secrets = self.endpoint.secrets();
        secrets.extend(self.key.clone());
        let sending = async move {
            let body = caught_encode(encode)?;
            let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned()));
            let headers: Vec<_> = headers.chain(self.headers).collect();
            let key = self.key.as_ref().filter(|key| !key.is_empty()).map(key_header);
            let answer = self.http.post(&self.endpoint, &headers, key, body, self.timeouts).await?;
            stream_of(answer).await
        };
        let on_its_way = OnItsWay::Sending(sending.boxed(), Some(decoder));
        Exchange { on_its_way, secrets }
    }
}

/// One request on its way. No error that leaves it shows what is secret, wherever it comes from.
pub(super) struct Exchange<D> {
    on_its_way: OnItsWay<D>,
    secrets: Vec<Secret>,
}

impl<D: Decode + Unpin> TurnSource for Exchange<D> {
    fn poll_turn(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> Poll<Option<Result<(), Error>>> {
        let this = &mut *self;
        let polled = ready!(Pin::new(&mut this.on_its_way).poll_turn(cx, turn));
        let masked = |text: &str| {
            this.secrets.iter().fold(text.to_owned(), |text, secret| secret.masked(&text))
        };
        Poll::Ready(polled.map(|pushed| pushed.map_err(|error| error.rewritten(masked))))
    }
}

enum OnItsWay<D> {
    Sending(BoxFuture<'static, Result<(Body, Option<String>), Error>>, Option<D>),
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
            let (body, request_id) = match ready!(sending.as_mut().poll(cx)) {
                Ok(answer) => answer,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            // Law: the decoder is taken here and nowhere else.
            let Some(decoder) = decoder.take() else { return Poll::Ready(None) };
            *this = Self::Answering(Box::new(Decoding::new(body, decoder)), request_id);
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
async fn stream_of(mut answer: Response) -> Result<(Body, Option<String>), Error> {
    // What a body is said to be is often wrong. Its first byte tells: no line of a stream of
    // events that anybody sends begins so.
    let first = if answer.status == 200 { answer.body.first_byte().await } else { None };
    let is_json = matches!(first, Some(b'{' | b'['));
    if answer.status == 200 && !is_json && first != Some(b'<') {
        return Ok((answer.body, answer.request_id));
    }
    let said = answer.text(MOST_OF_A_REFUSAL).await;
    let error = match answer.status {
        200 if failure::tells_of_error(&said) => failure::in_stream(&said),
        200 => {
            let what = if is_json { "one JSON document" } else { "a web page" };
            let message = format!("the provider answered with {what} instead of a stream");
            Error::new(ErrorKind::Protocol, message)
        }
        status => failure::of_status(status, &said),
    };
    let error = match answer.retry_after {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    };
    Err(match answer.request_id {
        Some(id) => error.with_request_id(id),
        None => error,
    })
}
