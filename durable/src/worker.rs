//! The worker: the agents and services with which a process performs runs.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use restate_sdk::endpoint::Endpoint;
use restate_sdk::http_server::HttpServer;
use tokio::net::{TcpListener, TcpSocket};
use turnstream::durable::Attempt;
#[cfg(feature = "testing")]
use turnstream::durable::suite::SuiteRuns;
use turnstream::hub::Hub;
use turnstream::session::Store;
use turnstream::tool::RunData;
use turnstream::{Agent, Error, ErrorKind, Outcome};

use crate::copies::Copies;
use crate::engine::RestateEngine;
use crate::inbox::Inbox;
use crate::session::Session;
use crate::tools::Tools;

/// Performs the runs of sessions for Restate.
#[derive(Clone, Default)]
pub struct Worker(WorkerParts);

/// The configuration that all handlers share.
#[derive(Clone, Default)]
pub(crate) struct WorkerParts {
    agents: Arc<HashMap<String, Agent>>,
    hub: Option<Hub>,
    data: Option<DataSource>,
    pub(crate) copy: Option<Arc<dyn Store>>,
    on_attempt: Option<AttemptObserver>,
    identity_keys: Vec<String>,
    #[cfg(feature = "testing")]
    suite: SuiteRuns,
}

type DataSource = Arc<dyn Fn(&str) -> RunData + Send + Sync>;
type AttemptObserver = Arc<dyn Fn(&str, &str) + Send + Sync>;

impl Worker {
    /// Creates a worker without agents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers an agent under the name that clients use for it. The agent's tools also perform the calls that run
    /// apart.
    ///
    /// Every worker of a deployment must register the same agents.
    pub fn with_agent(mut self, name: impl Into<String>, agent: Agent) -> Self {
        Arc::make_mut(&mut self.0.agents).insert(name.into(), agent);
        self
    }

    /// Shows the runs in a hub. A hub in Redis (`Hub::with_redis`) shows them in every process, and carries interrupts
    /// to them.
    pub fn with_hub(mut self, hub: &Hub) -> Self {
        self.0.hub = Some(hub.clone());
        self
    }

    /// Passes data to the tools of each run, as [`Run::with_data`](turnstream::Run::with_data) does. `data` is called
    /// with the id of the session.
    pub fn with_data(mut self, data: impl Fn(&str) -> RunData + Send + Sync + 'static) -> Self {
        self.0.data = Some(Arc::new(data));
        self
    }

    /// Keeps a one-way copy of each session in a store, for lists and search. Restate itself cannot list sessions.
    ///
    /// A session is copied after each of its runs and after an import; removing the session removes the copy. Runs
    /// neither wait for the copy nor read it. If the store fails, Restate retries the copy. Nothing else may write to
    /// these sessions of the store; see [`copy_session`](turnstream::durable::copy_session). If a run was killed
    /// through the admin API, its entries are copied after the next run.
    ///
    /// Every worker of a deployment must use the same store. A worker without a store makes no copy when Restate
    /// requests one from it.
    pub fn with_copy(mut self, store: impl Store + 'static) -> Self {
        self.0.copy = Some(Arc::new(store));
        self
    }

    /// Accepts only requests that a Restate server has signed with this key, for example `publickeyv1_…`. To accept
    /// several keys, call this method for each. Without a key, any program that can reach the worker can make it
    /// perform runs.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if `key` is not an identity key.
    pub fn with_identity_key(mut self, key: &str) -> Result<Self, Error> {
        Endpoint::builder().identity_key(key).map_err(|error| {
            let message = format!("`{key}` is not an identity key: {error}");
            Error::new(ErrorKind::InvalidRequest, message)
        })?;
        self.0.identity_keys.push(key.to_owned());
        Ok(self)
    }

    /// Calls `observe` when an attempt at a run starts in this worker, with the ids of the session and the run. It is
    /// meant for logs.
    pub fn on_attempt(mut self, observe: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.0.on_attempt = Some(Arc::new(observe));
        self
    }

    /// Performs the runs of the [suite](turnstream::durable::suite) for engines. The name of the agent of such a run is
    /// the session's id.
    #[cfg(feature = "testing")]
    pub fn with_suite(mut self, suite: &SuiteRuns) -> Self {
        self.0.suite = suite.clone();
        self
    }

    /// Returns the services of the worker, to serve them with another HTTP server.
    #[expect(clippy::missing_panics_doc, reason = "the keys were checked when they were set")]
    pub fn endpoint(&self) -> Endpoint {
        let parts = || self.0.clone();
        let mut services = Endpoint::builder();
        for key in &self.0.identity_keys {
            // Invariant: the key was checked when it was set.
            services = services.identity_key(key).expect("an identity key");
        }
        let services = services.bind(Session(parts())).bind(Inbox).bind(Tools(parts()));
        services.bind(Copies(parts())).build()
    }

    /// Listens on an address, with `TCP_NODELAY`. It does not set `SO_REUSEPORT`.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system.
    pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        // On Linux, accepted connections inherit this option. Without it, each step above 16 KiB takes 40 ms.
        socket.set_nodelay(true)?;
        socket.bind(address)?;
        socket.listen(1_024)
    }

    /// Serves Restate until `shutdown` completes, and then waits at most ten seconds for the runs of this worker. Runs
    /// that are still active after that, or after the future was dropped, continue in tasks and stop with the tokio
    /// runtime; another worker then continues them.
    ///
    /// `listener` must come from [`listen`](Self::listen), or must set `TCP_NODELAY` itself.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future) {
        HttpServer::new(self.endpoint()).serve_with_cancel(listener, shutdown).await;
    }
}

impl WorkerParts {
    pub(crate) fn agent(&self, name: &str) -> Result<Agent, Error> {
        #[cfg(feature = "testing")]
        if let Some(run) = self.suite.get(name) {
            return Ok(run.agent);
        }
        self.agents.get(name).cloned().ok_or_else(|| {
            let message = format!("no agent `{name}` is registered with this worker");
            Error::new(ErrorKind::Unsupported, message).with_parameter(name)
        })
    }

    pub(crate) fn hub(&self) -> Option<&Hub> {
        self.hub.as_ref()
    }

    pub(crate) fn data(&self, session: &str) -> Result<RunData, Error> {
        match &self.data {
            Some(data) => catch_panic("the source of run data", || data(session)),
            None => Ok(RunData::new()),
        }
    }

    /// Adds this worker's data, hub and observer to an attempt.
    pub(crate) fn prepare(
        &self,
        attempt: Attempt,
        session: &str,
        run: &str,
    ) -> Result<Attempt, Error> {
        if let Some(observe) = &self.on_attempt {
            catch_panic("the observer of attempts", || observe(session, run))?;
        }
        let attempt = attempt.with_data(self.data(session)?);
        Ok(match &self.hub {
            Some(hub) => attempt.with_hub(hub, run),
            None => attempt,
        })
    }

    /// Drives an attempt at the run of a session.
    pub(crate) async fn drive(
        &self,
        attempt: Attempt,
        session: &str,
        engine: &mut RestateEngine<'_, '_>,
    ) -> Result<Outcome, Error> {
        #[cfg(feature = "testing")]
        if let Some(run) = self.suite.get(session) {
            let attempt = run.attempt(engine.entries().to_vec());
            return attempt.drive(&mut run.losses.wrap(engine)).await;
        }
        let _ = session;
        attempt.drive(engine).await
    }
}

/// Runs a user's closure, and converts a panic to an error. Otherwise Restate would retry after a panic forever.
fn catch_panic<T>(what: &str, f: impl FnOnce() -> T) -> Result<T, Error> {
    std::panic::catch_unwind(AssertUnwindSafe(f))
        .map_err(|_| Error::new(ErrorKind::Panic, format!("{what} panicked")))
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("agents", &self.0.agents.keys()).finish_non_exhaustive()
    }
}
