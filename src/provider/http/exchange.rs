//! One request and its answer: encode, send, decode.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{self, BoxFuture};

use crate::error::{Error, ErrorKind, panic_to_error};
use crate::framing::Framing;
use crate::http::{
    Authorization, Body, Connection, Endpoint, Header, KeyHeader, Post, Response, Secret,
    TurnDeadlines, masked, was_closed,
};
use crate::provider::decode::Decoding;
use crate::provider::http::response_kind::stream_of;
use crate::provider::http::settings::{Settings, add_header, check_headers};
use crate::provider::http::wire::{Destination, Encoded, Wire};
use crate::provider::retry::{Attempts, Retrying};
use crate::request::Request;
use crate::stream::{PollTurn, TurnSource};
use crate::turn::{PartialTurn, TurnBuilder};

/// What is asked, of whom, and how.
#[derive(Clone)]
pub(super) struct Asked<W> {
    pub(super) wire: W,
    pub(super) settings: Arc<Settings>,
    pub(super) model: Arc<str>,
    /// The model is the provider's own.
    pub(super) is_own_model: bool,
}

impl<W: Wire> Asked<W> {
    /// A source that sends nothing before its first poll, which is also when the wire encodes. Each
    /// attempt has a decoder of its own.
    pub(super) fn send(self, request: Request) -> impl TurnSource + Send + 'static {
        let (policy, allowed) = (self.settings.retry.clone(), request.retries.clone());
        let first = match allowed.is_on_new_connection() {
            true => Connection::New,
            false => Connection::Any,
        };
        let attempts = Exchanges { asked: self, request: Some(request), encoded: None, first };
        Retrying::new(attempts, policy, allowed)
    }

    fn destination(&self) -> Destination<'_> {
        Destination { model: &self.model, is_vendor: self.settings.is_at_vendor() }
    }

    fn encode(&self, request: &Request) -> Result<Message, Error> {
        let to = match self.is_own_model {
            true => self.settings.target.endpoint.clone(),
            false => self.settings.endpoint_for(&self.wire, &self.model),
        }?;
        self.settings.check(&to)?;
        let Encoded { body, headers: own } = self.wire.encode(request, self.destination())?;
        let mut headers: Vec<Header> = vec![
            (Cow::Borrowed("content-type"), "application/json".to_owned()),
            (Cow::Borrowed("accept"), W::Framing::MEDIA_TYPE.to_owned()),
            // What is packed cannot be read here; without a word a server may send what it likes.
            (Cow::Borrowed("accept-encoding"), "identity".to_owned()),
        ];
        for (name, value) in self.wire.headers() {
            headers.push((Cow::Borrowed(name), (*value).to_owned()));
        }
        let mut own_and_users = self.settings.headers.clone();
        for (name, value) in own {
            add_header(&mut own_and_users, &name.to_ascii_lowercase(), &value);
        }
        let key_header = self.settings.key_header.unwrap_or_else(|| self.wire.key_header());
        Ok(Message { to, headers, key_header, own_and_users, body: body.into() })
    }
}

/// A request as it is sent but for what authorizes it, the same in each attempt.
struct Message {
    to: Endpoint,
    headers: Vec<Header>,
    key_header: KeyHeader,
    /// What comes after the header of a key, and may replace it.
    own_and_users: Vec<Header>,
    body: Bytes,
}

/// The attempts at one turn.
struct Exchanges<W> {
    asked: Asked<W>,
    /// `None` once the model has begun its answer.
    request: Option<Request>,
    /// What is sent, from the first attempt on until the answer has begun.
    encoded: Option<Result<Arc<Message>, Error>>,
    /// What the first attempt goes out on.
    first: Connection,
}

/// Nothing in it is pinned.
impl<W> Unpin for Exchanges<W> {}

impl<W: Wire> Attempts for Exchanges<W> {
    type Attempt = Exchange<W>;

    fn begin(&mut self, failed: Option<&Error>) -> Exchange<W> {
        let connection = match failed {
            None => self.first,
            Some(error) if was_closed(error) => Connection::New,
            Some(_) => Connection::Any,
        };
        Exchange::Sending(match self.prepared() {
            Ok((message, decoder)) => {
                send(self.asked.clone(), message, decoder, connection).boxed()
            }
            Err(error) => future::ready(Err(error)).boxed(),
        })
    }

    fn is_stale(&self, error: &Error) -> bool {
        was_closed(error)
    }

    fn begun(&mut self) {
        (self.request, self.encoded) = (None, None);
    }
}

impl<W: Wire> Exchanges<W> {
    /// What is sent, and what reads the answer.
    fn prepared(&mut self) -> Result<(Arc<Message>, W::Decoder), Error> {
        let Some(request) = &self.request else {
            return Err(Error::new(ErrorKind::Other, "the request was given up"));
        };
        let encode = || caught(|| self.asked.encode(request)).map(Arc::new);
        let message = self.encoded.get_or_insert_with(encode).clone()?;
        let decoder = caught(|| Ok(self.asked.wire.decoder(request, self.asked.destination())))?;
        Ok((message, decoder))
    }
}

/// An answer that is a stream.
struct Answer<W: Wire> {
    decoding: Box<Decoding<Body, W::Decoder, W::Framing>>,
    request_id: Option<String>,
    secrets: Arc<[Secret]>,
}

/// Sends a request and waits for an answer that is a stream.
async fn send<W: Wire>(
    asked: Asked<W>,
    message: Arc<Message>,
    decoder: W::Decoder,
    connection: Connection,
) -> Result<Answer<W>, Error> {
    let Asked { wire, settings, .. } = asked;
    let secrets = settings.secrets(&message.to);
    let mut deadlines = TurnDeadlines::start(settings.timeouts, message.to.host());
    let mut attempt = Attempt { wire, settings, message, secrets: secrets.into() };
    let answered = attempt.answered(connection, &mut deadlines).await;
    let secrets = attempt.secrets;
    let (body, request_id) =
        answered.map_err(|error| error.rewritten(|text| masked(&secrets, text)))?;
    let decoding =
        Decoding::from_frames(body, W::Framing::default(), decoder).with_deadlines(deadlines);
    Ok(Answer { decoding: Box::new(decoding), request_id, secrets })
}

/// One attempt, as far as the head of its answer.
struct Attempt<W> {
    wire: W,
    settings: Arc<Settings>,
    message: Arc<Message>,
    secrets: Arc<[Secret]>,
}

impl<W: Wire> Attempt<W> {
    async fn answered(
        &mut self,
        connection: Connection,
        deadlines: &mut TurnDeadlines,
    ) -> Result<(Body, Option<String>), Error> {
        let with_key = self.settings.has_key(&self.message.to);
        let response = deadlines.within(self.response(connection)).await??;
        stream_of(&self.wire, response, with_key, deadlines).await
    }

    async fn response(&mut self, connection: Connection) -> Result<Response, Error> {
        let authorization = self.authorize().await?;
        let response = self.post(&authorization, connection).await?;
        if response.status != 401 || !authorization.refused() {
            return Ok(response);
        }
        let authorization = self.authorize().await?;
        self.post(&authorization, connection).await
    }

    async fn authorize(&mut self) -> Result<Authorization, Error> {
        let Message { to, headers, key_header, own_and_users, body } = &*self.message;
        let Some(credential) = &self.settings.credential else {
            return Ok(Authorization::default());
        };
        let headers: Vec<_> = headers.iter().chain(own_and_users).cloned().collect();
        let authorization = credential.authorize(*key_header, to, &headers, body).await?;
        check_headers(&authorization.headers)?;
        let secrets = self.secrets.iter().chain(&authorization.secrets);
        self.secrets = secrets.cloned().collect();
        Ok(authorization)
    }

    async fn post(
        &self,
        authorization: &Authorization,
        connection: Connection,
    ) -> Result<Response, Error> {
        let Message { to, headers, own_and_users, body, .. } = &*self.message;
        // A user may set the header of the key; what was signed stays as it was signed.
        let [before, after] = match authorization.is_signature {
            true => [own_and_users.as_slice(), &authorization.headers],
            false => [authorization.headers.as_slice(), own_and_users],
        };
        let headers: Vec<_> = headers.iter().chain(before).chain(after).cloned().collect();
        let post = Post {
            to,
            headers: &headers,
            body: body.clone(),
            connect_timeout: self.settings.timeouts.connect,
            secrets: &self.secrets,
            connection,
        };
        self.settings.http.post(post).await
    }
}

/// One request on its way. No error that leaves it shows what is secret, wherever it comes from.
enum Exchange<W: Wire> {
    Sending(BoxFuture<'static, Result<Answer<W>, Error>>),
    Answering(Answer<W>),
}

impl<W: Wire> TurnSource for Exchange<W> {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> PollTurn {
        let this = self.get_mut();
        if let Self::Sending(sending) = this {
            *this = Self::Answering(ready!(sending.as_mut().poll(cx))?);
        }
        let Self::Answering(answer) = this else { return Poll::Ready(None) };
        let Answer { decoding, request_id, secrets } = answer;
        let polled = ready!(Pin::new(&mut **decoding).poll_turn(cx, turn));
        let hide = |text: &str| masked(secrets, text);
        Poll::Ready(polled.map(|pushed| {
            pushed.map_err(|error| {
                let error = match (error.request_id(), request_id.take()) {
                    (None, Some(id)) => error.with_request_id(id),
                    _ => error,
                };
                match PartialTurn::of(&error) {
                    // What the model said is not the server's, and the cause was rewritten before.
                    Some(_) => error.reworded(hide),
                    None => error.rewritten(hide),
                }
            })
        }))
    }
}

/// Runs a part of a wire; a panic in it is an error of the turn.
fn caught<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    panic_to_error(ErrorKind::Panic, "the wire", f).flatten()
}
