//! Handles a request from start to finish: encodes and sends it, and decodes the response.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use futures::future::{self, BoxFuture};

use crate::error::{Error, ErrorKind, panic_to_error};
use crate::framing::Framing;
use crate::http::{
    Authorization, Body, ConnectionPolicy, Credential, Endpoint, Header, KeyHeader, PostRequest,
    RequestBody, Response, Secret, TurnDeadlines, mask_secrets, was_connection_closed,
};
use crate::provider::codec::decode::Decoding;
use crate::provider::http::response_kind::{json_body, stream_body};
use crate::provider::http::settings::{HttpSettings, append_header, validate_headers};
use crate::provider::http::wire::{Destination, EncodedRequest, TokenCountRequest, Wire};
use crate::provider::wrap::retry::{Attempts, RetryingTurn};
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource};
use crate::turn::{PartialTurn, TurnBuilder};

/// The wire, settings and model used to send a turn's request.
#[derive(Clone)]
pub(super) struct PreparedTurn<W> {
    pub(super) wire: W,
    pub(super) settings: Arc<HttpSettings>,
    pub(super) model: Arc<str>,
    /// Whether the model is the provider's own model rather than a model that the request names.
    pub(super) is_own_model: bool,
}

impl<W: Wire> PreparedTurn<W> {
    /// Creates a source for the turn. The source encodes and sends nothing until it is first
    /// polled. Each attempt at the request uses a new decoder.
    pub(super) fn into_turn_source(self, request: Request) -> impl TurnSource + Send + 'static {
        let (policy, allowed) = (self.settings.retry_policy.clone(), request.allowed_retries());
        let first = match allowed.is_new_connection_required() {
            true => ConnectionPolicy::OpenNew,
            false => ConnectionPolicy::Reuse,
        };
        let attempts = ExchangeAttempts {
            prepared: self,
            request: Some(Box::new(request)),
            encoded: None,
            first_connection: first,
        };
        RetryingTurn::new(attempts, policy, allowed)
    }

    fn destination(&self) -> Destination<'_> {
        Destination { model: &self.model, is_vendor: self.settings.is_vendor_endpoint() }
    }

    fn encode(&self, request: &Request) -> Result<HttpMessage, Error> {
        let to = match self.is_own_model {
            true => self.settings.target.endpoint.clone(),
            false => self.settings.endpoint_for(&self.wire, &self.model),
        }?;
        self.settings.validate(&to)?;
        let encoded = self.wire.encode(request, self.destination())?;
        Ok(self.create_message(to, encoded, W::Framing::MEDIA_TYPE, request))
    }

    /// Encodes the request that asks the server to count tokens. Returns the name of the field that
    /// contains the count, too. Returns `None` if the server cannot count.
    fn encode_count(
        &self,
        request: &Request,
    ) -> Option<Result<(HttpMessage, &'static str), Error>> {
        let counted = self.wire.encode_token_count(request, self.destination())?;
        Some(counted.and_then(|counted| {
            let field = counted.field();
            let to = self.settings.endpoint_at(&counted.path, &self.model)?;
            self.settings.validate(&to)?;
            let message = self.create_message(to, counted.encoded, "application/json", request);
            Ok((message, field))
        }))
    }

    /// Asks the server to count a request's tokens. Nothing is sent before the first poll. Returns
    /// `None` if the server cannot count.
    pub(super) fn count_tokens(
        self,
        request: &Request,
    ) -> Option<BoxFuture<'static, Result<u64, Error>>> {
        // With a path of its own, the server's path for counting is unknown.
        if self.settings.has_own_path() {
            return None;
        }
        let encode = || panic_to_error(ErrorKind::Panic, "the wire", || self.encode_count(request));
        let encoded = encode().transpose()?.flatten();
        let count = async move {
            let (message, field) = encoded?;
            let Self { wire, settings, .. } = self;
            let secrets = settings.secrets(&message.endpoint).into();
            let host = message.endpoint.host_and_port();
            let mut deadlines = TurnDeadlines::start(settings.timeouts, host);
            let message = Arc::new(message);
            let mut attempt = HttpAttempt { wire, settings, message, secrets };
            let answered = attempt.receive_body(&mut deadlines).await;
            let body = answered.map_err(|error| {
                error.map_text_and_sources(|text| mask_secrets(&attempt.secrets, text))
            })?;
            TokenCountRequest::read_count(field, &body)
        };
        Some(count.boxed())
    }

    fn create_message(
        &self,
        to: Endpoint,
        encoded: EncodedRequest,
        accept: &str,
        request: &Request,
    ) -> HttpMessage {
        let EncodedRequest { body, headers: own } = encoded;
        let mut headers: Vec<Header> = vec![
            (Cow::Borrowed("content-type"), "application/json".to_owned()),
            (Cow::Borrowed("accept"), accept.to_owned()),
            // This crate cannot decompress bodies. Without this header, a server may send a
            // compressed body.
            (Cow::Borrowed("accept-encoding"), "identity".to_owned()),
        ];
        for (name, value) in self.wire.headers() {
            headers.push((Cow::Borrowed(name), (*value).to_owned()));
        }
        if let Some(context) = &request.trace_context {
            let values = context.headers();
            headers.extend(values.map(|(name, value)| (Cow::Borrowed(name), value.to_owned())));
        }
        let mut own_and_users = self.settings.headers.clone();
        for (name, value) in own {
            append_header(&mut own_and_users, &name.to_ascii_lowercase(), &value);
        }
        let key_header = self.settings.key_header.unwrap_or_else(|| self.wire.key_header());
        // A signer reads the whole body on each attempt.
        let body = match self.settings.credential.as_ref().is_some_and(Credential::is_signer) {
            true => RequestBody::Single(body.into_vec().into()),
            false => body.into(),
        };
        HttpMessage {
            endpoint: to,
            headers,
            key_header,
            wire_and_user_headers: own_and_users,
            body,
        }
    }
}

/// An encoded request without authorization, which is the same for all attempts.
struct HttpMessage {
    endpoint: Endpoint,
    headers: Vec<Header>,
    key_header: KeyHeader,
    /// The headers that are sent after the key header and may replace it.
    wire_and_user_headers: Vec<Header>,
    body: RequestBody,
}

/// Starts the attempts at a turn over HTTP.
struct ExchangeAttempts<W> {
    prepared: PreparedTurn<W>,
    /// The turn's request; `None` after the model's output has started.
    request: Option<Box<Request>>,
    /// The encoded request, which is kept from the first attempt until the model's output starts.
    encoded: Option<Result<Arc<HttpMessage>, Error>>,
    /// The connection policy for the first attempt.
    first_connection: ConnectionPolicy,
}

/// No field of `ExchangeAttempts` is structurally pinned.
impl<W> Unpin for ExchangeAttempts<W> {}

impl<W: Wire> Attempts for ExchangeAttempts<W> {
    type Turn = Exchange<W>;

    fn begin_attempt(&mut self, failed: Option<&Error>) -> Exchange<W> {
        let connection = match failed {
            Some(error) if was_connection_closed(error) => ConnectionPolicy::OpenNew,
            None | Some(_) => self.first_connection,
        };
        Exchange::Sending(match self.prepare() {
            Ok((message, decoder)) => {
                send_message(self.prepared.clone(), message, decoder, connection).boxed()
            }
            Err(error) => future::ready(Err(error)).boxed(),
        })
    }

    fn is_stale_connection(&self, error: &Error) -> bool {
        was_connection_closed(error)
    }

    fn on_output_started(&mut self) {
        (self.request, self.encoded) = (None, None);
    }
}

impl<W: Wire> ExchangeAttempts<W> {
    /// Returns the encoded request, and a new decoder for its response.
    fn prepare(&mut self) -> Result<(Arc<HttpMessage>, W::Decoder), Error> {
        let Some(request) = &self.request else {
            return Err(Error::new(ErrorKind::Other, "the request was abandoned"));
        };
        let encode = || catch_wire_panic(|| self.prepared.encode(request)).map(Arc::new);
        let message = self.encoded.get_or_insert_with(encode).clone()?;
        let decoder = catch_wire_panic(|| {
            Ok(self.prepared.wire.decoder(request, self.prepared.destination()))
        })?;
        Ok((message, decoder))
    }
}

/// A streaming response that is being decoded.
struct StreamingResponse<W: Wire> {
    decoding: Decoding<Body, W::Decoder, W::Framing>,
    request_id: Option<String>,
    secrets: Arc<[Secret]>,
}

/// Sends a request and waits for the streaming response.
async fn send_message<W: Wire>(
    prepared: PreparedTurn<W>,
    message: Arc<HttpMessage>,
    decoder: W::Decoder,
    connection: ConnectionPolicy,
) -> Result<StreamingResponse<W>, Error> {
    let PreparedTurn { wire, settings, .. } = prepared;
    let secrets = settings.secrets(&message.endpoint);
    let mut deadlines = TurnDeadlines::start(settings.timeouts, message.endpoint.host_and_port());
    let mut attempt = HttpAttempt { wire, settings, message, secrets: secrets.into() };
    let answered = attempt.open_stream(connection, &mut deadlines).await;
    let secrets = attempt.secrets;
    let (body, request_id) = answered
        .map_err(|error| error.map_text_and_sources(|text| mask_secrets(&secrets, text)))?;
    let decoding =
        Decoding::from_frames(body, W::Framing::default(), decoder).with_deadlines(deadlines);
    Ok(StreamingResponse { decoding, request_id, secrets })
}

/// A single attempt at a request, from sending the request to receiving the head of the response.
struct HttpAttempt<W> {
    wire: W,
    settings: Arc<HttpSettings>,
    message: Arc<HttpMessage>,
    secrets: Arc<[Secret]>,
}

impl<W: Wire> HttpAttempt<W> {
    async fn open_stream(
        &mut self,
        connection: ConnectionPolicy,
        deadlines: &mut TurnDeadlines,
    ) -> Result<(Body, Option<String>), Error> {
        let with_key = self.settings.has_key(&self.message.endpoint);
        let response = deadlines.await_within_limits(self.receive_response(connection)).await??;
        stream_body(&self.wire, response, with_key, deadlines).await
    }

    /// Returns the whole body of a response that is not a stream.
    async fn receive_body(&mut self, deadlines: &mut TurnDeadlines) -> Result<Vec<u8>, Error> {
        let with_key = self.settings.has_key(&self.message.endpoint);
        let response = self.receive_response(ConnectionPolicy::Reuse);
        let response = deadlines.await_within_limits(response).await??;
        json_body(&self.wire, response, with_key, deadlines).await
    }

    async fn receive_response(&mut self, connection: ConnectionPolicy) -> Result<Response, Error> {
        let authorization = self.authorize().await.map_err(Error::mark_unsent)?;
        let response = self.post_message(&authorization, connection).await?;
        if response.status != 401 || !authorization.discard_cached_token() {
            return Ok(response);
        }
        // The server has refused the first request.
        let authorization = self.authorize().await.map_err(Error::mark_unsent)?;
        self.post_message(&authorization, connection).await
    }

    async fn authorize(&mut self) -> Result<Authorization, Error> {
        let HttpMessage {
            endpoint: to,
            headers,
            key_header,
            wire_and_user_headers: own_and_users,
            body,
        } = &*self.message;
        let Some(credential) = &self.settings.credential else {
            return Ok(Authorization::default());
        };
        let headers = headers.iter().chain(own_and_users);
        let authorization = credential.authorize_post(*key_header, to, headers, body).await?;
        validate_headers(&authorization.headers)?;
        let secrets = self.secrets.iter().chain(&authorization.secrets);
        self.secrets = secrets.cloned().collect();
        Ok(authorization)
    }

    async fn post_message(
        &self,
        authorization: &Authorization,
        connection: ConnectionPolicy,
    ) -> Result<Response, Error> {
        let HttpMessage {
            endpoint: to, headers, wire_and_user_headers: own_and_users, body, ..
        } = &*self.message;
        // The user's headers may replace the key header, but signed headers must remain unchanged.
        let [before, after] = match authorization.is_signature {
            true => [own_and_users.as_slice(), &authorization.headers],
            false => [authorization.headers.as_slice(), own_and_users],
        };
        let headers: Vec<_> = headers.iter().chain(before).chain(after).collect();
        let post = PostRequest {
            endpoint: to,
            headers: &headers,
            body,
            connect_timeout: self.settings.timeouts.connect,
            secrets: &self.secrets,
            connection_policy: connection,
        };
        self.settings.http_client.post(post).await
    }
}

/// A request in progress. Secrets are masked in every error that the request fails with.
#[expect(
    clippy::large_enum_variant,
    reason = "it streams for most of its life, and the whole turn is one allocation"
)]
enum Exchange<W: Wire> {
    Sending(BoxFuture<'static, Result<StreamingResponse<W>, Error>>),
    Streaming(StreamingResponse<W>),
}

impl<W: Wire> TurnSource for Exchange<W> {
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let this = self.get_mut();
        if let Self::Sending(sending) = this {
            *this = Self::Streaming(ready!(sending.as_mut().poll(cx))?);
        }
        let Self::Streaming(answer) = this else { return Poll::Ready(None) };
        let StreamingResponse { decoding, request_id, secrets } = answer;
        let polled = ready!(Pin::new(decoding).poll_turn(cx, turn));
        let hide = |text: &str| mask_secrets(secrets, text);
        Poll::Ready(polled.map(|pushed| {
            pushed.map_err(|error| {
                let error = match (error.request_id(), request_id.take()) {
                    (None, Some(id)) => error.with_request_id(id),
                    _ => error,
                };
                match error.find_source::<PartialTurn>() {
                    // The partial turn contains the model's output, not a message from the server,
                    // and the cause has already been masked.
                    Some(_) => error.map_text(hide),
                    None => error.map_text_and_sources(hide),
                }
            })
        }))
    }
}

/// Calls a method of a wire, and converts a panic to an error.
pub(super) fn catch_wire_panic<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    panic_to_error(ErrorKind::Panic, "the wire", f).flatten()
}
