//! The server: listens, and gives each connection a task.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::lock::lock_ignoring_poison;
use crate::testing::http::connection::{Handler, serve};
use crate::testing::http::request::HttpRequest;
use crate::testing::http::request_log::RequestLog;
use crate::testing::http::response::HttpResponse;

/// How long to wait before accepting again when the system has no socket to give.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);

/// An HTTP/1.1 server on a free port of 127.0.0.1, for as long as the value lives.
///
/// It spawns one task that accepts, and one per connection. Dropping the server aborts them all:
/// answers stop where they are, and the sockets close, as soon as the runtime gets to it. What a
/// drop ends does not count as [closed early](Self::closed_early_count).
///
/// See the [module](crate::testing::http) for an example.
#[derive(Debug)]
pub struct LoopbackServer {
    address: SocketAddr,
    log: Arc<RequestLog>,
    /// The task that accepts. It owns the connections' tasks and takes them with it.
    accept_task: AbortHandle,
}

impl LoopbackServer {
    /// Starts a server that answers each request as `handler` says.
    ///
    /// The handler is called when a request is complete, body and all. It runs on the task of the
    /// connection and should not block. If it panics, the client gets a 500 with the panic's
    /// message and the server goes on. What is not a request of HTTP/1.1, or has a head over
    /// 64 KiB or a body over 64 MiB, never reaches the handler: the client gets a 400 and the
    /// connection is closed.
    ///
    /// # Errors
    ///
    /// If no port of 127.0.0.1 can be had.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or in one whose I/O is not enabled. Time must be enabled as well.
    pub async fn start(
        handler: impl Fn(HttpRequest) -> HttpResponse + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let log = Arc::new(RequestLog::default());
        let accepting = tokio::spawn(accept_loop(listener, Arc::new(handler), log.clone()));
        Ok(Self { address, log, accept_task: accepting.abort_handle() })
    }

    /// Returns the address as `http://127.0.0.1:PORT`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns how many connections were accepted so far.
    pub fn connection_count(&self) -> usize {
        self.log.connection_count.load(Ordering::SeqCst)
    }

    /// Returns every request received so far, in the order in which they were complete.
    ///
    /// A request is in here before the handler is asked.
    pub fn requests(&self) -> Vec<HttpRequest> {
        lock_ignoring_poison(&self.log.requests).clone()
    }

    /// Returns how many responses had their client go away before the end was sent.
    ///
    /// A client is gone when it closes the connection, or its sending side of it, or takes no
    /// more bytes. Responses that end by [`Cut`] or [`Reset`] are not counted.
    ///
    /// [`Cut`]: crate::testing::http::BodyPart::Cut
    /// [`Reset`]: crate::testing::http::BodyPart::Reset
    pub fn closed_early_count(&self) -> usize {
        *self.log.closed_early_count.borrow()
    }

    /// Waits until [`closed_early_count`](Self::closed_early_count) is above zero, which it may be already: it
    /// waits for the first client and no other.
    ///
    /// What a test awaits in place of a sleep, once it has dropped a client. Dropping the future
    /// stops the waiting and nothing else.
    pub async fn wait_for_early_close(&self) {
        let mut count = self.log.closed_early_count.subscribe();
        // An error would mean that the sender is gone, and it is here, in `self`.
        let _ = count.wait_for(|count| *count > 0).await;
    }
}

impl Drop for LoopbackServer {
    /// Stops accepting and aborts every connection.
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

async fn accept_loop(listener: TcpListener, handler: Arc<Handler>, log: Arc<RequestLog>) {
    // Aborts its tasks when dropped, which is when this task is aborted.
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
