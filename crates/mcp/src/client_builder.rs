//! Configures a client before it connects.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use turnstream::agent::Agent;
#[cfg(doc)]
use turnstream::error::ErrorKind;
use turnstream::http::{Credential, HttpClient};

use crate::content::MediaParts;
use crate::endpoint::{Endpoint, HttpEndpoint};
use crate::limits::Limits;
use crate::questions::{Answerers, Elicitation, ElicitationAnswer};
use crate::shared_client::{AcceptedDefinitions, Settings, SharedClient};

/// Configures a [`Client`](crate::Client) before it connects. Returned by
/// [`Client::stdio`](crate::Client::stdio), [`Client::http`](crate::Client::http),
/// [`Client::streams`](crate::Client::streams) and
/// [`Client::from_json`](crate::Client::from_json).
///
/// ```
/// use turnstream_mcp::{Client, MediaParts, ServerCommand};
///
/// let client = Client::stdio(ServerCommand::new("garden-server"))
///     .with_name("garden")
///     .with_media(MediaParts::Sent)
///     .build();
/// assert_eq!(client.name(), "garden");
/// ```
#[derive(Clone)]
#[must_use = "a client is created by `build`"]
pub struct ClientBuilder {
    settings: Settings,
    accepted: AcceptedDefinitions,
}

impl ClientBuilder {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        let settings = Settings {
            name: endpoint.default_name(),
            endpoint,
            limits: Limits::default(),
            answerers: Answerers::default(),
            media: MediaParts::default(),
        };
        Self { settings, accepted: AcceptedDefinitions::default() }
    }

    /// Sets the server's name, which becomes the prefix of its tool names: `{name}__{tool}`. By
    /// default, the name is derived from the command or the address. For example, `npx
    /// @modelcontextprotocol/server-filesystem` results in the name `filesystem`. If neither
    /// contains a suitable word, the default name is `server`. The servers that an agent uses must
    /// have different names.
    ///
    /// All providers accept tool names of up to 64 letters, digits, `_` and `-` that begin with a
    /// letter. Tool names with other characters, and server names longer than 24 characters, are
    /// changed or shortened. A server name that does not begin with a letter is prefixed with `s_`.
    /// A changed or shortened name ends with a hash of the original name, so it is the same in each
    /// listing.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Sets how much data the server may send and how long it may take to respond, in place of the
    /// [defaults](Limits).
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Adds a header to each request. The header is used only for HTTP connections.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let header = (name.into().into(), value.into());
        if let Some(endpoint) = self.http_endpoint() {
            endpoint.headers.push(header);
        }
        self
    }

    /// Sets how requests are authorized. A key or a token is sent as `authorization: Bearer …`. If
    /// the server responds with status 401, the client fetches a new token and retries once. A
    /// second response with status 401 results in an [`Auth`](ErrorKind::Auth) error. A
    /// [signer](Credential::signer) receives an empty body, because the transport does not give
    /// access to the request body. The credential is used only for HTTP connections.
    pub fn with_credential(mut self, credential: Credential) -> Self {
        if let Some(endpoint) = self.http_endpoint() {
            endpoint.credential = Some(credential);
        }
        self
    }

    /// Sets the HTTP client, for example to configure certificates or a proxy. The HTTP client is
    /// used only for HTTP connections.
    pub fn with_http_client(mut self, client: HttpClient) -> Self {
        if let Some(endpoint) = self.http_endpoint() {
            endpoint.http_client = client;
        }
        self
    }

    /// Lets the server ask the user questions during a call. If this method is not called, the
    /// server's questions are declined.
    ///
    /// If the future that `ask` returns takes longer than [`Limits::input`], the future is dropped
    /// and the server receives the answer [`Cancel`](ElicitationAnswer::Cancel). The future is also
    /// dropped when the call is dropped. If the future panics, the question is declined.
    pub fn with_elicitation<F, R>(mut self, ask: F) -> Self
    where
        F: Fn(Elicitation) -> R + Send + Sync + 'static,
        R: Future<Output = ElicitationAnswer> + Send + 'static,
    {
        let ask = Arc::new(move |question| ask(question).boxed());
        self.settings.answerers.elicitation = Some(ask);
        self
    }

    /// Lets the server send requests to a model during a call (`sampling`). If this method is not
    /// called, the server receives an error in response to requests to a model.
    ///
    /// The agent runs as a sub-agent of the call, and its events are nested in the run's events.
    /// The tokens that the agent uses are part of the run's `nested_usage`, which the run's budget
    /// does not count: limit them with a [budget](Agent::with_budget) of the agent, or with a pool
    /// that both share. The server's messages are combined into one text prompt. The
    /// server can lower the agent's own limit on output tokens, but cannot raise it. The server's
    /// model preference is ignored. If the agent calls a tool that requires approval, the call is
    /// denied.
    pub fn with_sampling(mut self, agent: Agent) -> Self {
        self.settings.answerers.sampling = Some(agent);
        self
    }

    /// Sets the folders that the server should restrict itself to (`roots`). The restriction is not
    /// enforced: the server's process can still read other folders. If this method is not called,
    /// the server receives an error when it requests the folders.
    pub fn with_roots<P: Into<PathBuf>>(mut self, folders: impl IntoIterator<Item = P>) -> Self {
        let folders = folders.into_iter().map(Into::into).collect();
        self.settings.answerers.roots = Some(folders);
        self
    }

    /// Sets whether audio and other files in results are sent to the model. By default, the model
    /// receives only each file's type and size.
    pub fn with_media(mut self, media: MediaParts) -> Self {
        self.settings.media = media;
        self
    }

    /// Sets the accepted tool definitions. `known` is a value that
    /// [`Client::fingerprints`](crate::Client::fingerprints) returned, for example in an
    /// earlier process. If a tool is missing from `known` or its definition has a different
    /// fingerprint, calls to the tool require approval, even if the tool is allowed.
    pub fn with_fingerprints(mut self, known: &BTreeMap<String, String>) -> Self {
        let parsed = known.iter().filter_map(|(name, fingerprint)| {
            Some((name.clone(), u128::from_str_radix(fingerprint, 16).ok()?))
        });
        self.accepted = AcceptedDefinitions::complete(parsed.collect());
        self
    }

    /// Returns the server's name, used as the prefix for its tool names.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    pub(crate) fn into_shared(self) -> SharedClient {
        SharedClient::new(self.settings, self.accepted)
    }

    fn http_endpoint(&mut self) -> Option<&mut HttpEndpoint> {
        match &mut self.settings.endpoint {
            Endpoint::Http(http) => Some(Arc::make_mut(http)),
            Endpoint::Stdio(_) | Endpoint::Streams(_) => None,
        }
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("name", &self.settings.name)
            .field("endpoint", &self.settings.endpoint)
            .finish_non_exhaustive()
    }
}
