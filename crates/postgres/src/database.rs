//! Manages the connection pool, and retries calls after a connection breaks.
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
    TimeoutType, Timeouts,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::connector::Connector;
use crate::error::{PostgresError, PostgresErrorKind};

/// The time that the client waits for a response after the server's statement timeout has passed.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);
/// A call may wait for a connection for at least this long, even if calls are not retried.
const SHORTEST_WAIT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The connection pool that a store uses for everything except leases and followers.
pub(crate) struct Database {
    pool: Pool,
    wants_writable: bool,
    limits: TimeLimits,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimits {
    /// How long a call is retried after a connection breaks.
    pub(crate) retry: Duration,
    pub(crate) statement: Duration,
}

/// Manages the attempts to complete a single call.
pub(crate) struct Attempts<'a> {
    database: &'a Database,
    until: Instant,
    /// The time at which the call stops waiting for a connection.
    wait_until: Instant,
    next_pause: Duration,
    client: Option<Object>,
    /// Whether the writes of an attempt that received no response may have taken effect.
    is_outcome_open: bool,
}

impl Database {
    pub(crate) fn new(
        connector: Connector,
        pool_size: usize,
        limits: TimeLimits,
    ) -> Result<Self, PostgresError> {
        let config = connector.config.clone();
        let wants_writable = connector.wants_writable();
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(config, connector, manager_config);
        let pool = Pool::builder(manager)
            .max_size(pool_size)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                create: Some(limits.retry.max(SHORTEST_WAIT)),
                ..Timeouts::default()
            })
            .build()
            .map_err(|error| PostgresError::new(PostgresErrorKind::Other, error.to_string()))?;
        Ok(Self { pool, wants_writable, limits })
    }

    /// Starts the attempts to complete a call.
    pub(crate) fn attempts(&self) -> Attempts<'_> {
        let now = Instant::now();
        Attempts {
            database: self,
            until: now + self.limits.retry,
            wait_until: now + self.limits.retry.max(SHORTEST_WAIT),
            next_pause: FIRST_PAUSE,
            client: None,
            is_outcome_open: false,
        }
    }

    /// Waits for a response from the server, for slightly longer than the server's own statement
    /// timeout.
    pub(crate) async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, PostgresError>>,
    ) -> Result<T, PostgresError> {
        let limit = self.limits.statement + ANSWER_MARGIN;
        timeout(limit, answer).await.unwrap_or_else(|_| Err(PostgresError::no_answer(limit)))
    }

    async fn connection(&self, until: Instant) -> Result<Object, PostgresError> {
        let error = match timeout_at(until, self.pool.get()).await {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => error,
            Err(_) => PoolError::Timeout(TimeoutType::Wait),
        };
        Err(match error {
            PoolError::Backend(error) => error.into(),
            PoolError::Timeout(_) => {
                let message = "no pooled connection within the limit";
                PostgresError::new(PostgresErrorKind::Unreachable, message)
            }
            other => PostgresError::new(PostgresErrorKind::Other, other.to_string()),
        })
    }
}

impl Attempts<'_> {
    /// Returns the last attempt's connection, or another connection if that connection is closed.
    pub(crate) async fn client(&mut self) -> Result<&mut ClientWrapper, PostgresError> {
        let client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => loop {
                match self.database.connection(self.wait_until).await {
                    Ok(client) => break client,
                    Err(error) => self.pause(error).await?,
                }
            },
        };
        Ok(self.client.insert(client))
    }

    /// Waits until the next attempt is due, or returns the error if the call must not be retried.
    pub(crate) async fn after_error(&mut self, error: PostgresError) -> Result<(), PostgresError> {
        self.is_outcome_open |= error.leaves_outcome_open();
        let is_standby =
            error.kind() == PostgresErrorKind::ReadOnly && self.database.wants_writable;
        if error.leaves_outcome_open() || is_standby {
            // The connection is not returned to the pool, because a response may still arrive on
            // it.
            drop(self.client.take().map(Object::take));
        }
        if is_standby {
            // The pool's other connections are connected to the same server.
            self.database.pool.retain(|_, _| false);
        }
        match is_standby || error.is_transient() {
            true => self.pause(error).await,
            false => Err(error),
        }
    }

    /// Waits until the next attempt is due. Called when the last attempt has conflicted with
    /// another call.
    pub(crate) async fn after_race(&mut self) -> Result<(), PostgresError> {
        let message = "other calls conflicted with every attempt";
        self.pause(PostgresError::new(PostgresErrorKind::Unreachable, message)).await
    }

    /// Returns whether the writes of an attempt that received no response may have taken effect.
    pub(crate) fn is_outcome_open(&self) -> bool {
        self.is_outcome_open
    }

    async fn pause(&mut self, error: PostgresError) -> Result<(), PostgresError> {
        let retries = error.is_transient() || error.kind() == PostgresErrorKind::ReadOnly;
        if !retries || Instant::now() + self.next_pause >= self.until {
            return Err(error);
        }
        sleep(self.next_pause).await;
        self.next_pause = (self.next_pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Checks that the server accepts writes. The server must not be a standby, and
/// `default_transaction_read_only` must be off.
pub(crate) async fn ensure_writable(client: &Client) -> Result<(), PostgresError> {
    let rows = client.simple_query("SHOW transaction_read_only").await?;
    let is_on = |row: &SimpleQueryMessage| match row {
        SimpleQueryMessage::Row(row) => row.get(0) == Some("on"),
        _ => false,
    };
    match rows.iter().any(is_on) {
        true => {
            let message = "the server no longer accepts writes";
            Err(PostgresError::new(PostgresErrorKind::ReadOnly, message))
        }
        false => Ok(()),
    }
}
