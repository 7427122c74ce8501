//! Serves a router on a listener, with limits on connections.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::future::{Either, select};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::write_timeout::WriteTimeout;

/// The size of the kernel's send buffer for a client that does not read.
const SEND_BUFFER_BYTES: u32 = 64 * 1024;

/// The size of a connection's buffers, which is also the maximum size of a request's head.
const CONNECTION_BUFFER_BYTES: usize = 32 * 1024;

/// The number of connections that the kernel accepts for the server.
const BACKLOG: u32 = 1_024;

/// How long the server waits after a connection could not be accepted, for example because the
/// process has no descriptors left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The limits of [`serve`] on its connections and on the time that their clients may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The maximum number of open connections. Further ones wait in the kernel until another has
    /// ended. The default is 20,000. Each connection needs a file descriptor: if the process may
    /// have fewer, as with the usual limit of 1,024, raise that limit (`ulimit -n`) or lower this
    /// one, because a process without free descriptors cannot open files either.
    pub max_connections: usize,
    /// How long a client may take to send the head of a request, from the opening of the connection
    /// or the end of the previous response. Idle connections are therefore closed after this time,
    /// too. The default is 30 seconds.
    pub head_timeout: Duration,
    /// How long a connection stays open while its client does not read. The time starts when the
    /// buffers of the kernel and of the connection are full, and again whenever the client has
    /// read. The default is 60 seconds.
    pub write_timeout: Duration,
    /// How long connections may stay open after the server has been stopped, to complete their
    /// responses. The default is 3 seconds.
    pub close_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_connections: 20_000,
            head_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_mins(1),
            close_timeout: Duration::from_secs(3),
        }
    }
}

/// Listens on an address, which can be used again immediately after the server has ended. The
/// kernel buffers about 64 KiB for each client that does not read. [`serve`] closes the connection
/// of such a client after [`write_timeout`](ConnectionLimits::write_timeout).
///
/// # Errors
///
/// Returns the operating system's error, with the address in its message.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = open_listener(address);
    listener.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    })
}

fn open_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(cfg!(unix))?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves a router over HTTP/1.1 until `stop` completes. Then no connection is accepted, idle ones
/// are closed, and the others may take [`close_timeout`](ConnectionLimits::close_timeout) to
/// complete their responses.
///
/// Unlike `axum::serve`, it limits the number of connections, the time for the head of a request
/// and its size (32 KiB), and the time for which a client does not read, so that clients that send
/// or read nothing cannot use it up. A [`ChatServer`](crate::ChatServer) has a [method of its
/// own](crate::ChatServer::serve). To serve one with other limits or routes, pass a future that
/// shuts it down, because its readers do not end before:
///
/// ```no_run
/// use std::time::Duration;
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream_server::{ChatServer, ConnectionLimits, listen, serve, stop_signal};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let server = ChatServer::new(Agent::new(Scripted::new(["Hello!"])));
/// let listener = listen(([127, 0, 0, 1], 8080).into())?;
/// let stop = async {
///     stop_signal().await;
///     server.shut_down(Duration::from_secs(10)).await;
/// };
/// serve(listener, server.router(), ConnectionLimits::default(), stop).await;
/// # Ok(())
/// # }
/// ```
///
/// Dropping the returned future closes all connections.
///
/// # Panics
///
/// Panics if called outside of a tokio runtime with I/O and time.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(CONNECTION_BUFFER_BYTES);
    let graceful = GracefulShutdown::new();
    // They end when this future is dropped.
    let mut connections = JoinSet::new();
    let free = Arc::new(Semaphore::new(limits.max_connections.min(Semaphore::MAX_PERMITS)));
    let mut stop = pin!(stop);
    loop {
        let accepted = pin!(accept(&listener, &free));
        let (stream, slot) = match select(stop.as_mut(), accepted).await {
            Either::Left(_) => break,
            Either::Right((accepted, _)) => accepted,
        };
        while connections.try_join_next().is_some() {}
        let service = TowerToHyperService::new(router.clone());
        let stream = TokioIo::new(WriteTimeout::new(stream, limits.write_timeout));
        let connection = graceful.watch(http.serve_connection(stream, service));
        connections.spawn(async move {
            // A client that breaks the protocol or the connection concerns no one else.
            let _ = connection.await;
            drop(slot);
        });
    }
    drop(listener);
    // A client that does not read cannot keep the server running.
    let _ = timeout(limits.close_timeout, graceful.shutdown()).await;
}

/// Accepts the next connection once there are fewer than the maximum.
async fn accept(
    listener: &TcpListener,
    free: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let slot = Arc::clone(free).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Tokens are sent one by one. A socket that cannot do so still works.
                let _ = stream.set_nodelay(true);
                return (stream, slot);
            }
            // The client has closed the connection before it was accepted.
            Err(error) if is_client_error(error.kind()) => {}
            Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
}

fn is_client_error(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// Waits until the program is asked to end: by Ctrl-C or, on Unix, by SIGTERM. From the first call
/// on, these signals no longer end the program on their own, even after the returned future has
/// been dropped, which only ends the wait.
///
/// # Panics
///
/// Panics if called outside of a tokio runtime with I/O.
pub async fn stop_signal() {
    let ctrl_c = pin!(async {
        if tokio::signal::ctrl_c().await.is_err() {
            pending::<()>().await;
        }
    });
    select(ctrl_c, pin!(terminated())).await;
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut signals) => drop(signals.recv().await),
        Err(_) => pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    pending().await
}
