//! The provider itself, and its settings as a user sees them.

use std::sync::Arc;

use crate::env::Random;
use crate::error::Error;
use crate::http::{Credential, Endpoint, HttpClient, KeyHeader, Timeouts};
use crate::provider::http::exchange::PreparedTurn;
use crate::provider::http::settings::{HttpSettings, append_header};
use crate::provider::http::wire::Wire;
use crate::provider::{Backoff, Provider};
use crate::request::Request;
use crate::stream::{TurnStream, seal};
use crate::turn::TurnBuilder;

/// A model that is asked over a [`Wire`]. Cheap to clone.
///
/// [`Anthropic`](crate::provider::Anthropic), [`OpenAiChat`](crate::provider::OpenAiChat),
/// [`OpenAiResponses`](crate::provider::OpenAiResponses), [`Gemini`](crate::provider::Gemini) and
/// [`Ollama`](crate::provider::Ollama) are this provider over their wires. For a wire of your own,
/// see [`from_wire`](Self::from_wire).
///
/// Without a key it sends none; at the vendor's own address that is an error of the turn.
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
    /// A model by its name, at the vendor's own address, without a key.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self::from_wire(W::default(), model)
    }
}

impl<W: Wire> HttpProvider<W> {
    /// A model by its name over a wire, without a key.
    pub fn from_wire(wire: W, model: impl Into<Arc<str>>) -> Self {
        let model = model.into();
        let settings = Arc::new(HttpSettings::new(&wire, &model));
        Self { model, wire, settings }
    }

    /// The wire, with its own settings.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// Sets the key, sent in the header that the wire has for it, for example `x-api-key`, or in that
    /// of [`with_key_header`](Self::with_key_header). Short for
    /// [`Credential::key`].
    pub fn with_api_key(self, key: impl AsRef<str>) -> Self {
        self.with_credential(Credential::key(key))
    }

    /// Sets how requests are authorized: by a key, by a token that is fetched and refreshed, or by a
    /// signature of each request. It replaces an earlier one, a key included.
    pub fn with_credential(self, credential: Credential) -> Self {
        self.update_settings(|settings| settings.credential = Some(credential))
    }

    /// Sets the header that a key is sent in. A token is always sent as `authorization: Bearer …`, and
    /// a signer names its headers itself.
    pub fn with_key_header(self, header: KeyHeader) -> Self {
        self.update_settings(|settings| settings.key_header = Some(header))
    }

    /// Sets the address, as the vendor's SDKs take it: with `/v1` for the wires of OpenAI, without
    /// it for the others. A `/` at its end is ignored, and a query is sent with every request.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if it is not an http or https URL.
    pub fn with_base_url(self, url: impl AsRef<str>) -> Result<Self, Error> {
        let url = Endpoint::new(url.as_ref())?;
        Ok(self.update_target(|settings| settings.base_url = Some(url)))
    }

    /// Sets the path below the base URL, for servers that have the wire at another one: `/chat` or `/models/{model}:rawPredict`. `{model}` stands for the name of the
    /// model, which is percent-encoded but for a `/`, and a query may follow.
    pub fn with_path(self, path: impl Into<String>) -> Self {
        let path = path.into();
        self.update_target(|settings| settings.path = Some(path))
    }

    /// Adds a parameter to the query of each request, for example `api-version`. It replaces an
    /// earlier one of the same name and one in the path, but not one in the base URL.
    pub fn with_query(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.update_target(|settings| {
            settings.query.retain(|(known, _)| *known != name);
            settings.query.push((name, value));
        })
    }

    /// Sets the client; the one that all providers share unless set.
    pub fn with_http_client(self, http: HttpClient) -> Self {
        self.update_settings(|settings| settings.http_client = http)
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
    pub fn with_header(self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.update_settings(|settings| settings.set_header(name.as_ref(), value.as_ref()))
    }

    /// Allows that the key is sent over plain http to another machine, for example in a network
    /// of your own. Everyone on the way can read it.
    ///
    /// Without this, such a request is an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) of the turn. Requests to this machine
    /// (`localhost`, `127.0.0.1`) and requests without a key are not affected.
    pub fn allow_plain_http(self) -> Self {
        self.update_settings(|settings| settings.allows_plain_http = true)
    }

    /// Sets the time limits. They hold for each attempt.
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        self.update_settings(|settings| settings.timeouts = timeouts)
    }

    /// Sets how many times a request is sent, and how long to wait in between: at most 3
    /// times by default.
    ///
    /// Failed connections and the statuses 408, 409, 429 and 5xx are retried, unless the
    /// server says in `x-should-retry` or in words that it is of no use; nothing is retried
    /// once the model has begun its answer. The server's own `retry-after` is obeyed up to
    /// [`Backoff::max_retry_after`]. A connection that the server closed while it was not in use is
    /// replaced at once, without a wait. Each wait is reported by a
    /// [`Retrying`](crate::TurnEvent::Retrying) before it begins.
    ///
    /// [`Retry`](crate::provider::Retry), or a provider that is asked next, takes the place
    /// of these retries.
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        self.update_settings(|settings| settings.retry_policy.backoff = backoff)
    }

    /// Sends each request once: its first error is the turn's. Only the replacement of a
    /// [token](Credential::token) that was refused sends it once more.
    pub fn without_retries(self) -> Self {
        self.with_backoff(Backoff { max_attempts: 1, ..Backoff::default() })
    }

    /// Sets where the jitter of the waits comes from.
    pub fn with_random(self, random: impl Random + 'static) -> Self {
        self.update_settings(|settings| settings.retry_policy.random = Arc::new(random))
    }

    /// Changes the wire's own settings.
    pub(in crate::provider) fn update_wire(mut self, change: impl FnOnce(&mut W)) -> Self {
        change(&mut self.wire);
        self.update_target(|_| {})
    }

    /// Adds to the values of a header.
    pub(in crate::provider) fn append_header(self, name: &str, value: &str) -> Self {
        self.update_settings(|settings| append_header(&mut settings.headers, name, value))
    }

    /// Whether requests go to the vendor of the wire itself.
    pub(in crate::provider) fn is_vendor_endpoint(&self) -> bool {
        self.settings.is_vendor_endpoint()
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
        let other = request.model.as_deref().filter(|model| **model != *self.model);
        let asked = PreparedTurn {
            wire: self.wire.clone(),
            settings: Arc::clone(&self.settings),
            model: other.map_or_else(|| Arc::clone(&self.model), Arc::from),
            is_own_model: other.is_none(),
        };
        seal(turn, asked.into_turn_source(request))
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn has_tool_search(&self) -> bool {
        self.wire.has_tool_search()
    }
}
