//! The HTTP provider and its public settings.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::env::Random;
use crate::error::Error;
use crate::http::{Credential, Endpoint, HttpClient, KeyHeader, Timeouts};
use crate::item::{History, Item, Part};
use crate::provider::http::exchange::{PreparedTurn, catch_wire_panic};
use crate::provider::http::settings::{HttpSettings, append_header};
use crate::provider::http::wire::{Destination, Wire};
use crate::provider::{Backoff, Provider};
use crate::request::Request;
use crate::stream::{TurnStream, seal};
use crate::turn::TurnBuilder;

/// A provider that sends requests over HTTP, using the protocol defined by a [`Wire`]. An
/// `HttpProvider` is cheap to clone.
///
/// The types [`Anthropic`](crate::provider::Anthropic),
/// [`OpenAiChat`](crate::provider::OpenAiChat),
/// [`OpenAiResponses`](crate::provider::OpenAiResponses), [`Gemini`](crate::provider::Gemini) and
/// [`Ollama`](crate::provider::Ollama) are `HttpProvider`s with the wires for these vendors. For a
/// custom wire, see [`from_wire`](Self::from_wire).
///
/// If no API key is set, turns whose requests would be sent to the vendor's own address fail.
/// Requests to other addresses are sent without a key.
///
/// ```
/// use turnstream::provider::Anthropic;
///
/// let model = Anthropic::new("claude-sonnet-4-5").with_api_key("sk-ant-…");
/// assert!(!format!("{model:?}").contains("sk-ant"));
/// ```
#[derive(Clone, Debug)]
pub struct HttpProvider<W> {
    model: Arc<str>,
    wire: W,
    settings: Arc<HttpSettings>,
}

impl<W: Wire + Default> HttpProvider<W> {
    /// Creates a provider for a model at the vendor's own address, without an API key.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self::from_wire(W::default(), model)
    }
}

impl<W: Wire> HttpProvider<W> {
    /// Creates a provider that uses the given wire and model, without an API key.
    pub fn from_wire(wire: W, model: impl Into<Arc<str>>) -> Self {
        let model = model.into();
        let settings = Arc::new(HttpSettings::new(&wire, &model));
        Self { model, wire, settings }
    }

    /// Returns the wire. Settings that are specific to a wire are stored in the wire itself.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// Sets the API key. The key is sent in the wire's key header, such as `x-api-key`, or in the
    /// header set by [`with_key_header`](Self::with_key_header). This method is a shorthand for
    /// [`with_credential`](Self::with_credential) with a [`Credential::key`].
    pub fn with_api_key(self, key: impl AsRef<str>) -> Self {
        self.with_credential(Credential::key(key))
    }

    /// Sets the credential that authorizes requests: a key, a token that is fetched and refreshed,
    /// or a signer that signs each request. A credential or key that was set earlier is replaced.
    pub fn with_credential(self, credential: Credential) -> Self {
        self.update_settings(|settings| settings.credential = Some(credential))
    }

    /// Sets the header in which a key is sent. A token is always sent as `authorization: Bearer …`,
    /// and a signer chooses its own headers.
    pub fn with_key_header(self, header: KeyHeader) -> Self {
        self.update_settings(|settings| settings.key_header = Some(header))
    }

    /// Sets the base URL, in the form that the vendor's SDKs expect: with `/v1` for the OpenAI
    /// wires, and without `/v1` for all other wires. A trailing `/` is ignored. If the URL has a
    /// query, the query is sent with every request.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if `url` is not an
    /// HTTP or HTTPS URL.
    pub fn with_base_url(self, url: impl AsRef<str>) -> Result<Self, Error> {
        let url = Endpoint::new(url.as_ref())?;
        Ok(self.update_target(|settings| settings.base_url = Some(url)))
    }

    /// Sets the path below the base URL, for example `/chat` or `/models/{model}:rawPredict`. Use
    /// this method for servers whose path differs from the vendor's. `{model}` is replaced with the
    /// model's name, which is percent-encoded except for `/`. The path may include a query.
    pub fn with_path(self, path: impl Into<String>) -> Self {
        let path = path.into();
        self.update_target(|settings| settings.path = Some(path))
    }

    /// Adds a query parameter, such as `api-version`, to each request. The parameter replaces any
    /// parameter with the same name that was added earlier or is in the path, but not a parameter
    /// in the base URL.
    pub fn with_query(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.update_target(|settings| {
            settings.query.retain(|(known, _)| *known != name);
            settings.query.push((name, value));
        })
    }

    /// Sets the HTTP client. By default, all providers share a single client.
    pub fn with_http_client(self, http: HttpClient) -> Self {
        self.update_settings(|settings| settings.http_client = http)
    }

    /// Adds a header to each request, for example for a gateway, a proxy, or an optional feature
    /// offered by the vendor.
    ///
    /// A header with the same name that the provider or an earlier call has set is replaced, even
    /// if it is the key header. If the name contains a word such as `key`, `token`, `secret` or
    /// `authorization`, the value is treated as a key: it is masked in errors and is sent over
    /// plain HTTP only to this machine.
    ///
    /// If the name or the value is not valid in HTTP, the turn fails with an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error. The turn also fails if the
    /// header describes the body, as `content-type` does.
    pub fn with_header(self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.update_settings(|settings| settings.set_header(name.as_ref(), value.as_ref()))
    }

    /// Allows the key to be sent over plain HTTP to another machine, for example in a private
    /// network. Anyone on the network path can read the key.
    ///
    /// By default, a turn that would send a key over plain HTTP to another machine fails with an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error. Requests to this machine
    /// (`localhost`, `127.0.0.1`) and requests without a key are not affected.
    pub fn allow_plain_http(self) -> Self {
        self.update_settings(|settings| settings.allows_plain_http = true)
    }

    /// Sets the timeouts, which apply separately to each attempt at a request.
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        self.update_settings(|settings| settings.timeouts = timeouts)
    }

    /// Sets the maximum number of attempts at a request (3 by default) and the delays between the
    /// attempts.
    ///
    /// A request is retried after a failed connection or a response with status 408, 409, 429 or
    /// 5xx. A request is not retried if the server reports in `x-should-retry` or in its message
    /// that a retry cannot succeed, or once the model's output has started. A delay that the server
    /// requests with `retry-after` is honored up to [`Backoff::max_retry_after`]. If the server has
    /// closed an idle connection, the connection is replaced immediately, without a delay. Each
    /// delay is announced by a [`Retrying`](crate::TurnEvent::Retrying) event.
    ///
    /// If this provider is wrapped in a [`Retry`](crate::provider::Retry) provider or a fallback
    /// provider, this provider does not retry after errors that the wrapping provider handles
    /// itself.
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        self.update_settings(|settings| settings.retry_policy.backoff = backoff)
    }

    /// Disables retries, so that each request is sent once and its first error is returned. The
    /// only exception: if the server rejects a [token](Credential::token), the request is resent
    /// once with a new token.
    pub fn without_retries(self) -> Self {
        self.with_backoff(Backoff { max_attempts: 1, ..Backoff::default() })
    }

    /// Sets the source of randomness for the jitter in the retry delays.
    pub fn with_random(self, random: impl Random + 'static) -> Self {
        self.update_settings(|settings| settings.retry_policy.random = Arc::new(random))
    }

    /// Changes the wire's settings.
    pub(in crate::provider) fn update_wire(mut self, change: impl FnOnce(&mut W)) -> Self {
        change(&mut self.wire);
        self.update_target(|_| {})
    }

    /// Appends a string to the value of a header.
    pub(in crate::provider) fn append_header(self, name: &str, value: &str) -> Self {
        self.update_settings(|settings| append_header(&mut settings.headers, name, value))
    }

    /// Returns whether requests are sent to the vendor's own server.
    pub(in crate::provider) fn is_vendor_endpoint(&self) -> bool {
        self.settings.is_vendor_endpoint()
    }

    /// Returns what is needed to send a request to the model that it names, or else to the
    /// provider's own model.
    fn prepare_for(&self, request: &Request) -> PreparedTurn<W> {
        let other = request.model.as_deref().filter(|model| **model != *self.model);
        PreparedTurn {
            wire: self.wire.clone(),
            settings: Arc::clone(&self.settings),
            model: other.map_or_else(|| Arc::clone(&self.model), Arc::from),
            is_own_model: other.is_none(),
        }
    }

    fn update_settings(mut self, change: impl FnOnce(&mut HttpSettings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    fn update_target(mut self, change: impl FnOnce(&mut HttpSettings)) -> Self {
        self = self.update_settings(change);
        Arc::make_mut(&mut self.settings).resolve_target(&self.wire, &self.model);
        self
    }
}

impl<W: Wire> Provider for HttpProvider<W> {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let turn = TurnBuilder::from(&request);
        seal(turn, self.prepare_for(&request).into_turn_source(request))
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn has_tool_search(&self) -> bool {
        self.wire.has_tool_search()
    }

    /// Sends a single request, which is not retried.
    fn count_tokens(&self, request: &Request) -> Option<BoxFuture<'static, Result<u64, Error>>> {
        self.prepare_for(request).count_tokens(request)
    }

    /// Encodes a request that contains only a message with these parts.
    fn check_parts(&self, parts: &[Part]) -> Result<(), Error> {
        // A message that contains only empty files would be refused because it is empty.
        let parts = [Part::from("?")].into_iter().chain(parts.iter().cloned());
        let message = Item::user(parts.collect::<Vec<_>>());
        let request = Request::new(History::from_items("", [message]));
        let to = Destination { model: &self.model, is_vendor: self.is_vendor_endpoint() };
        catch_wire_panic(|| self.wire.encode(&request, to)).map(drop)
    }
}
