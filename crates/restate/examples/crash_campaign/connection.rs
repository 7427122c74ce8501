//! Clients that retry requests while servers are dead.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use turnstream::{Error, ErrorKind};
use turnstream_restate::Client;

/// A request without an answer after this time is sent again, to another node if there is one.
const REQUEST_LIMIT: Duration = Duration::from_secs(15);
/// The time after which a run counts as unfinished. Kills and a busy machine delay runs.
const GIVE_UP_AFTER: Duration = Duration::from_mins(5);
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// A client for each node, of which one is used until it fails.
pub(crate) struct Connection {
    clients: Vec<Client>,
    current: Cell<usize>,
}

impl Connection {
    pub(crate) fn new(urls: &[String], first: usize) -> Result<Self, Error> {
        let clients = urls.iter().map(|url| Client::new(url)).collect::<Result<_, _>>()?;
        Ok(Self { clients, current: Cell::new(first) })
    }

    /// Sends a request until it is answered.
    ///
    /// # Errors
    ///
    /// The error that a server answers with, or the last connection error if all servers fail for
    /// minutes.
    pub(crate) async fn request<T>(
        &self,
        send: impl AsyncFn(&Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let start = Instant::now();
        loop {
            let client = &self.clients[self.current.get() % self.clients.len()];
            let error = match timeout(REQUEST_LIMIT, send(client)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if !is_unreachable(&error) => return Err(error),
                Ok(Err(error)) => error,
                Err(_) => Error::new(ErrorKind::Connect, "there is no answer"),
            };
            if start.elapsed() > GIVE_UP_AFTER {
                return Err(error);
            }
            self.current.set(self.current.get() + 1);
            sleep(RETRY_DELAY).await;
        }
    }

    /// Repeats a request until `find` finds something in its answer.
    pub(crate) async fn poll<T, U>(
        &self,
        send: impl AsyncFn(&Client) -> Result<T, Error>,
        mut find: impl FnMut(T) -> Option<U>,
    ) -> Result<U, Error> {
        let start = Instant::now();
        loop {
            if let Some(found) = find(self.request(&send).await?) {
                return Ok(found);
            }
            if start.elapsed() > GIVE_UP_AFTER {
                return Err(Error::new(ErrorKind::Timeout, "the session makes no progress"));
            }
            sleep(RETRY_DELAY).await;
        }
    }
}

/// Whether no server has accepted the request.
fn is_unreachable(error: &Error) -> bool {
    // A server that is starting answers with this error until it has loaded the registered
    // services.
    let is_starting = || error.message().contains("make sure to register the service");
    error.kind() == ErrorKind::Connect || is_starting()
}
