//! The connection over which commands are sent to the server.

use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind as RedisErrorKind, FromRedisValue, RedisError,
};
use tokio::time::Instant;
use turnstream::hub::LogUnavailable;
use turnstream::{Error, ErrorKind};

use crate::lock::lock_ignoring_poison;

/// The maximum time to wait for a connection or for a response.
pub(crate) const RESPONSE_LIMIT: Duration = Duration::from_secs(1);

/// How long after a failed connection attempt commands fail without a new attempt.
const RECONNECT_WAIT: Duration = Duration::from_millis(200);

/// A connection that is shared by many commands. If the connection breaks, it is re-established;
/// until then, commands fail immediately.
pub(crate) struct Connection {
    client: Client,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    live: Option<MultiplexedConnection>,
    /// The number of times that the connection has been established.
    generation: u64,
    attempt: Option<SharedConnect>,
    failed: Option<(Instant, Error)>,
}

type SharedConnect = Shared<BoxFuture<'static, Result<MultiplexedConnection, Error>>>;

impl Connection {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, state: Mutex::default() }
    }

    pub(crate) async fn script<T: FromRedisValue>(
        &self,
        script: &redis::ScriptInvocation<'_>,
    ) -> Result<T, Error> {
        let (generation, mut live) = self.get().await?;
        let answer = script.invoke_async(&mut live).await;
        self.check(generation, answer)
    }

    pub(crate) async fn query<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, Error> {
        let (generation, mut live) = self.get().await?;
        let answer = command.query_async(&mut live).await;
        self.check(generation, answer)
    }

    pub(crate) async fn pipeline<T: FromRedisValue>(
        &self,
        pipeline: &redis::Pipeline,
    ) -> Result<T, Error> {
        let (generation, mut live) = self.get().await?;
        let answer = pipeline.query_async(&mut live).await;
        self.check(generation, answer)
    }

    /// Returns the connection, establishing it first if necessary. All waiting callers drive the
    /// same connection attempt, so a caller whose future is not polled does not block the others.
    async fn get(&self) -> Result<(u64, MultiplexedConnection), Error> {
        let attempt = {
            let mut state = lock_ignoring_poison(&self.state);
            if let Some(live) = &state.live {
                return Ok((state.generation, live.clone()));
            }
            if let Some((at, error)) = &state.failed
                && at.elapsed() < RECONNECT_WAIT
            {
                return Err(error.clone());
            }
            let connect = || connect(self.client.clone()).boxed().shared();
            state.attempt.get_or_insert_with(connect).clone()
        };
        let made = attempt.clone().await;
        let mut state = lock_ignoring_poison(&self.state);
        if state.attempt.as_ref().is_some_and(|current| current.ptr_eq(&attempt)) {
            state.attempt = None;
            match &made {
                Ok(live) => {
                    state.generation += 1;
                    (state.live, state.failed) = (Some(live.clone()), None);
                }
                Err(error) => state.failed = Some((Instant::now(), error.clone())),
            }
        }
        made.map(|live| (state.generation, live))
    }

    /// Closes the connection if a command failed without a response from the server.
    fn check<T>(&self, generation: u64, answer: Result<T, RedisError>) -> Result<T, Error> {
        let Err(error) = answer else { return answer.map_err(to_error) };
        let has_answered =
            error.code().is_some() || error.kind() == RedisErrorKind::UnexpectedReturnType;
        if !has_answered {
            let mut state = lock_ignoring_poison(&self.state);
            if state.generation == generation {
                state.live = None;
            }
        }
        Err(to_error(error))
    }
}

async fn connect(client: Client) -> Result<MultiplexedConnection, Error> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(RESPONSE_LIMIT))
        .set_response_timeout(Some(RESPONSE_LIMIT));
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(to_error)
}

/// The error codes with which a server reports that it currently cannot execute a command.
const OUTAGE_CODES: [&str; 9] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
];

/// Converts an error from the Redis client. The returned error has [`LogUnavailable`] as its source
/// if the server cannot be reached, or currently cannot execute commands.
pub(crate) fn to_error(error: RedisError) -> Error {
    // Before Redis version 7, a script error contains the code of its cause only as part of the
    // text.
    let names_outage = |detail: &str| {
        OUTAGE_CODES.iter().any(|code| detail.contains(&format!("-{code} ")))
            || detail.contains("max number of clients reached")
    };
    let is_refusal = match error.code() {
        Some(code) => !OUTAGE_CODES.contains(&code) && !error.detail().is_some_and(names_outage),
        None => matches!(
            error.kind(),
            RedisErrorKind::UnexpectedReturnType
                | RedisErrorKind::AuthenticationFailed
                | RedisErrorKind::InvalidClientConfig
        ),
    };
    match is_refusal {
        true => Error::new(ErrorKind::Store, format!("redis refuses: {error}")).with_source(error),
        false => Error::new(ErrorKind::Store, format!("{LogUnavailable}: {error}"))
            .with_source(LogUnavailable),
    }
}
