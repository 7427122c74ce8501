//! A loopback server, which spawns a task for each connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::http::connection::{Handler, serve};
use crate::http::request::HttpRequest;
use crate::http::request_log::RequestLog;
use crate::http::response::HttpResponse;
use crate::lock::lock_ignoring_poison;

/// How long to wait after failing to accept a connection, for example because the system has no
/// free socket.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);

/// An HTTP/1.1 server on a free port of 127.0.0.1. The server runs until it is dropped.
///
/// The server spawns one task that accepts connections, and one task per connection. Dropping the
/// server aborts all its tasks. Responses then stop immediately, and the sockets are closed as soon
/// as the runtime drops the tasks. A response that is interrupted by dropping the server does not
/// count as [closed early](Self::closed_early_count).
///
/// For an example, see the [module](crate::http).
#[derive(Debug)]
pub struct LoopbackServer {
    address: SocketAddr,
    log: Arc<RequestLog>,
    /// The task that accepts connections. Because this task owns the connections' tasks, aborting
    /// it also aborts the connections' tasks.
    accept_task: AbortHandle,
}

impl LoopbackServer {
    /// Starts a server that answers each request with the response that `handler` returns.
    ///
    /// The handler is called once a request is complete, including its body. The handler runs on
    /// the connection's task and should not block. If the handler panics, the client receives a
    /// response with status 500 and the panic message, and the server keeps running. If a message
    /// is not an HTTP/1.1 request, or if its head exceeds 64 KiB or its body exceeds 64 MiB, the
    /// handler is not called, the client receives a response with status 400, and the connection is
    /// closed.
    ///
    /// # Errors
    ///
    /// Returns an error if no port of 127.0.0.1 is available.
    ///
    /// # Panics
    ///
    /// Panics if called outside a tokio runtime, or if the runtime's I/O or time driver is not
    /// enabled.
    pub async fn start(
        handler: impl Fn(HttpRequest) -> HttpResponse + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let log = Arc::new(RequestLog::default());
        let accepting = tokio::spawn(accept_loop(listener, Arc::new(handler), log.clone()));
        Ok(Self { address, log, accept_task: accepting.abort_handle() })
    }

    /// Returns the server's address as `http://127.0.0.1:PORT`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of connections accepted so far.
    pub fn connection_count(&self) -> usize {
        self.log.connection_count.load(Ordering::SeqCst)
    }

    /// Returns all requests received so far, in the order in which they were completed.
    ///
    /// A request is added to this list before the handler is called with it.
    pub fn requests(&self) -> Vec<HttpRequest> {
        lock_ignoring_poison(&self.log.requests).clone()
    }

    /// Returns the number of responses that the client interrupted by disconnecting.
    ///
    /// A client counts as disconnected if it closes the connection or its sending side, or if
    /// writing to it fails. Responses that end with [`Cut`] or [`Reset`] are not counted.
    ///
    /// [`Cut`]: crate::http::BodyPart::Cut
    /// [`Reset`]: crate::http::BodyPart::Reset
    pub fn closed_early_count(&self) -> usize {
        *self.log.closed_early_count.borrow()
    }

    /// Waits until [`closed_early_count`](Self::closed_early_count) is greater than zero. If the
    /// count is already greater than zero, this method returns immediately.
    ///
    /// After dropping a client, a test can await this method instead of sleeping. Dropping the
    /// returned future has no effect other than to stop waiting.
    pub async fn wait_for_early_close(&self) {
        let mut count = self.log.closed_early_count.subscribe();
        // Waiting cannot fail, because `self` owns the sender.
        let _ = count.wait_for(|count| *count > 0).await;
    }
}

impl Drop for LoopbackServer {
    /// Stops accepting connections and aborts all open connections.
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

async fn accept_loop(listener: TcpListener, handler: Arc<Handler>, log: Arc<RequestLog>) {
    // The `JoinSet` aborts its tasks when it is dropped, which happens if this task is aborted.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let number = log.connection_count.fetch_add(1, Ordering::SeqCst);
                    let (handler, log) = (handler.clone(), log.clone());
                    connections.spawn(async move { serve(stream, number, &*handler, &log).await });
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
