//! Opens connections to the server.
use std::future::poll_fn;
use std::time::Duration;

use deadpool_postgres::Connect;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{AsyncMessage, Client, Config, Error as Postgres};
use turnstream::{Error, ErrorKind};

use crate::connection_string::{BadOption, TlsMode, split_connection_string};
use crate::error::PostgresError;
#[cfg(not(feature = "rustls"))]
use crate::no_tls::{TlsConnector, tls_connector};
#[cfg(feature = "rustls")]
use crate::server_certificate::{TlsConnector, tls_connector};

/// The maximum time to wait for a host to accept a connection, unless the connection string sets a
/// timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be idle before keepalives are sent. Keepalives detect a failed server,
/// machine or network.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// The maximum time until a failure is detected on a connection that is waiting for a response.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens connections to the server. A separate task drives each connection.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) config: Config,
    tls: TlsConnector,
    /// The SQL that is executed on each new connection.
    settings: String,
}

impl Connector {
    /// Parses a connection string, and reads the root certificates that the string refers to.
    pub(crate) fn new(connection_string: &str, statement_timeout: Duration) -> Result<Self, Error> {
        let invalid = |why: &str| {
            let message = format!("the connection string of PostgreSQL cannot be used: {why}");
            Error::new(ErrorKind::InvalidRequest, message)
        };
        let split = split_connection_string(connection_string).map_err(|BadOption(name)| {
            invalid(&format!("the value of the option `{name}` is not supported"))
        })?;
        let mut config: Config = split.rest.parse().map_err(|error: Postgres| {
            // All other messages quote parts of the connection string, which may include the
            // password.
            let why = std::error::Error::source(&error).map(ToString::to_string);
            let why = why.filter(|why| why.starts_with("invalid value for option"));
            invalid(why.as_deref().unwrap_or("it is neither a URL nor known `key=value` pairs"))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid("it names no host"));
        }
        config.ssl_mode(match split.tls.mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        if config.get_hosts().iter().all(is_unix_socket) && !config.get_hosts().is_empty() {
            // As in libpq, TLS is not used on Unix sockets.
            config.ssl_mode(SslMode::Disable);
        }
        set_defaults(&mut config);
        let tls = tls_connector(&split.tls)
            .map_err(|error| error.into_store_error("cannot connect to PostgreSQL"))?;
        let settings = format!(
            // Stronger settings, with which a commit also waits for a standby, are kept.
            // `remote_write` is one of them: a commit waits both for the standby and for the
            // server's own disk.
            "SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') IN ('off', 'local');
             -- The statements have literals with the name of the schema.
             SET standard_conforming_strings = on;
             SET default_transaction_isolation = 'read committed';
             SET statement_timeout = {0};
             SET idle_in_transaction_session_timeout = {0}",
            statement_timeout.as_millis(),
        );
        Ok(Self { config, tls, settings })
    }

    /// Adds SQL that is executed on each new connection.
    pub(crate) fn with_settings(mut self, settings: &str) -> Self {
        self.settings = format!("{}; {settings}", self.settings);
        self
    }

    /// Returns whether the connection string requires a server that accepts writes.
    pub(crate) fn wants_writable(&self) -> bool {
        self.config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite
    }

    #[cfg_attr(
        not(feature = "rustls"),
        expect(clippy::clone_on_copy, reason = "only the connector without TLS is `Copy`")
    )]
    fn tls(&self) -> TlsConnector {
        self.tls.clone()
    }

    /// Opens a connection. The connection's task passes asynchronous messages from the server to
    /// `on_message`, and drops `on_message` when the task ends.
    pub(crate) async fn connect(
        &self,
        mut on_message: impl FnMut(AsyncMessage) + Send + 'static,
        limit: Duration,
    ) -> Result<(Client, JoinHandle<()>), PostgresError> {
        let connecting = async {
            let (client, mut connection) = self.config.connect(self.tls()).await?;
            let task = tokio::spawn(async move {
                // Both an error and the end of the connection end the task; the client reports
                // errors to its callers.
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    on_message(message);
                }
            });
            client.batch_execute(&self.settings).await?;
            Ok((client, task))
        };
        match timeout(limit, connecting).await {
            Ok(connected) => connected.map_err(|error: Postgres| error.into()),
            Err(_) => Err(PostgresError::no_answer(limit)),
        }
    }
}

/// Opens connections for the connection pool.
impl Connect for Connector {
    fn connect(
        &self,
        config: &Config,
    ) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Postgres>> {
        let config = config.clone();
        async move {
            let (client, connection) = config.connect(self.tls()).await?;
            let task = tokio::spawn(connection.map(drop));
            client.batch_execute(&self.settings).await?;
            Ok((client, task))
        }
        .boxed()
    }
}

fn is_unix_socket(host: &Host) -> bool {
    match host {
        Host::Tcp(_) => false,
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn set_defaults(config: &mut Config) {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
    // tokio-postgres's default of two hours is longer than any call should wait.
    if config.get_keepalives_idle() == Duration::from_hours(2) {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
    if config.get_application_name().is_none() {
        config.application_name("turnstream");
    }
}
