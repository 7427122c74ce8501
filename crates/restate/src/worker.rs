//! The worker: the agents and services with which a process executes runs.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use restate_sdk::endpoint::Endpoint;
use restate_sdk::http_server::HttpServer;
use tokio::net::{TcpListener, TcpSocket};
use turnstream::hub::Hub;
use turnstream::session::Store;
use turnstream::tool::RunData;
use turnstream::{Agent, Error, ErrorKind};
#[cfg(feature = "testing")]
use turnstream_testing::durable_suite::SuiteRuns;

use crate::inbox::Inbox;
use crate::session::{Copies, Session};
use crate::tools::Tools;
use crate::worker_settings::WorkerSettings;

/// Executes sessions' runs for Restate, and the calls that are executed separately from them. Cheap
/// to clone. Dropping a `Worker` does not stop an [endpoint](Self::endpoint) that was created from
/// it.
#[derive(Clone, Default)]
pub struct Worker {
    settings: WorkerSettings,
    identity_keys: Vec<String>,
}

impl Worker {
    /// Creates a worker that has no agents yet. Register them with
    /// [`with_agent`](Self::with_agent).
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers an agent under the name by which clients refer to it. The agent's tools also
    /// perform the calls that are executed separately from their run.
    ///
    /// All workers in a deployment must register the same agents.
    pub fn with_agent(mut self, name: impl Into<String>, agent: Agent) -> Self {
        Arc::make_mut(&mut self.settings.agents).insert(name.into(), agent);
        self
    }

    /// Shows the runs in a hub. A hub in Redis (`RedisEvents`) shows the runs in every process, and
    /// delivers interrupts to the runs.
    pub fn with_hub(mut self, hub: &Hub) -> Self {
        self.settings.hub = Some(hub.clone());
        self
    }

    /// Passes data to the tools of each run, as [`Run::with_data`](turnstream::Run::with_data)
    /// does. `data` is called with the session's id.
    pub fn with_data(mut self, data: impl Fn(&str) -> RunData + Send + Sync + 'static) -> Self {
        self.settings.data = Some(Arc::new(data));
        self
    }

    /// Keeps a one-way copy of each session in a store, so that sessions can be listed and
    /// searched. Restate itself cannot list sessions.
    ///
    /// A session is copied after each of its runs and after an import. Removing the session also
    /// removes the copy. Runs neither wait for the copy nor read it. If the store fails, Restate
    /// retries the copy operation. Nothing else may write to the copies in the store; see
    /// [`copy_session`](turnstream::durable::storage::copy_session). If a run is killed through the
    /// admin API, its entries are copied after the next run.
    ///
    /// All workers in a deployment must use the same store. If Restate asks a worker without a
    /// store to copy a session, no copy is made.
    pub fn with_copy(mut self, store: impl Store + 'static) -> Self {
        self.settings.copy = Some(Arc::new(store));
        self
    }

    /// Accepts only requests that a Restate server has signed with this key, for example
    /// `publickeyv1_…`. To accept several keys, call this method once for each key. Without a key,
    /// any program that can reach the worker can make it execute runs.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if `key` is not an identity
    /// key.
    pub fn with_identity_key(mut self, key: &str) -> Result<Self, Error> {
        Endpoint::builder().identity_key(key).map_err(|error| {
            let message = format!("`{key}` is not an identity key: {error}");
            Error::new(ErrorKind::InvalidRequest, message)
        })?;
        self.identity_keys.push(key.to_owned());
        Ok(self)
    }

    /// Calls `observe` with the session's id and the run's id whenever an attempt at a run starts
    /// in this worker. This callback is intended for logging.
    pub fn on_attempt(mut self, observe: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.settings.on_attempt = Some(Arc::new(observe));
        self
    }

    /// Lets the worker execute the runs of the engine
    /// [suite](mod@turnstream_testing::durable_suite). In the suite's runs, the agent's name is the
    /// session's id.
    #[cfg(feature = "testing")]
    pub fn with_suite(mut self, suite: &SuiteRuns) -> Self {
        self.settings.suite = suite.clone();
        self
    }

    /// Returns the worker's services, for use with a different HTTP server.
    #[expect(clippy::missing_panics_doc, reason = "the keys were checked when they were set")]
    pub fn endpoint(&self) -> Endpoint {
        let settings = || self.settings.clone();
        let mut services = Endpoint::builder();
        for key in &self.identity_keys {
            // This never panics, because the key was checked when it was set.
            services = services.identity_key(key).expect("an identity key");
        }
        let services = services.bind(Session(settings())).bind(Inbox).bind(Tools(settings()));
        services.bind(Copies(settings())).build()
    }

    /// Creates a listener on an address. Sets `TCP_NODELAY`, but not `SO_REUSEPORT`.
    ///
    /// # Errors
    ///
    /// Returns the error from the operating system.
    pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        // On Linux, accepted connections inherit this option. Without `TCP_NODELAY`, each step
        // larger than 16 KiB takes 40 ms.
        socket.set_nodelay(true)?;
        socket.bind(address)?;
        socket.listen(1_024)
    }

    /// Serves Restate's requests until `shutdown` completes, and then waits up to ten seconds for
    /// this worker's runs to end. Runs that are still active after that, or after the returned
    /// future is dropped, continue in their own tasks until the tokio runtime shuts down. Another
    /// worker then continues these runs.
    ///
    /// Create `listener` with [`listen`](Self::listen), or set `TCP_NODELAY` on it yourself.
    /// Without this option, each step larger than 16 KiB takes 40 ms.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future) {
        HttpServer::new(self.endpoint()).serve_with_cancel(listener, shutdown).await;
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("agents", &self.settings.agents.keys())
            .finish_non_exhaustive()
    }
}
