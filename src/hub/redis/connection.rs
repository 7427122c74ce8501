//! The connection that commands go through.

use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind as RedisErrorKind, FromRedisValue, RedisError,
};
use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::hub::LogUnavailable;
use crate::lock::lock_ignoring_poison;

/// The longest wait for a connection and for an answer.
pub(super) const RESPONSE_LIMIT: Duration = Duration::from_secs(1);

/// The time after a failed attempt to connect in which every command fails at once.
const RECONNECT_WAIT: Duration = Duration::from_millis(200);

/// A connection that many commands share, and that is made again when it breaks. Commands fail at once while it cannot
/// be made.
pub(super) struct Connection {
    client: Client,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    live: Option<MultiplexedConnection>,
    /// How often it was made.
    generation: u64,
    attempt: Option<Attempt>,
    failed: Option<(Instant, Error)>,
}

type Attempt = Shared<BoxFuture<'static, Result<MultiplexedConnection, Error>>>;

impl Connection {
    pub(super) fn new(client: Client) -> Self {
        Self { client, state: Mutex::default() }
    }

    pub(super) async fn script<T: FromRedisValue>(
        &self,
        script: &redis::ScriptInvocation<'_>,
    ) -> Result<T, Error> {
        let (generation, mut live) = self.get().await?;
        let answer = script.invoke_async(&mut live).await;
        self.check(generation, answer)
    }

    pub(super) async fn query<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, Error> {
        let (generation, mut live) = self.get().await?;
        let answer = command.query_async(&mut live).await;
        self.check(generation, answer)
    }

    pub(super) async fn pipeline<T: FromRedisValue>(
        &self,
        pipeline: &redis::Pipeline,
    ) -> Result<T, Error> {
        let (generation, mut live) = self.get().await?;
        let answer = pipeline.query_async(&mut live).await;
        self.check(generation, answer)
    }

    /// Makes the connection unless it exists. All calls that wait for it drive the same attempt, so that a call that
    /// is not polled any more holds up no other.
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

    /// Gives up the connection that a command has failed on, unless the server has answered.
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

/// Answers of a server that cannot do it now.
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

/// The error for the caller, which has [`LogUnavailable`] as its source if the server cannot be reached, or cannot
/// answer now.
pub(super) fn to_error(error: RedisError) -> Error {
    // Before version 7, the error of a script has the code of its cause in its text only.
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
