//! A worker in this process.

use restate_sdk::prelude::{Endpoint, HttpServer};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;

/// An endpoint that is served on the loopback interface.
///
/// It has a runtime of its own. [`kill`](Self::kill) drops that runtime with all its tasks, so the
/// connections close as if the process had been killed, and a worker that is started at the same
/// address takes over.
#[derive(Debug)]
pub(crate) struct Worker {
    address: SocketAddr,
    /// None once the worker was killed.
    runtime: Option<Runtime>,
}

impl Worker {
    /// Serves `endpoint` at a free port.
    pub(crate) fn start(endpoint: Endpoint) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), endpoint)
    }

    /// Serves `endpoint` at this address, where a killed worker was before.
    pub(crate) fn start_at(address: SocketAddr, endpoint: Endpoint) -> Self {
        Self::start_with(endpoint, || listen_with_nodelay(address))
    }

    /// Serves `endpoint` on the listener that `listen` opens.
    pub(crate) fn start_with(
        endpoint: Endpoint,
        listen: impl FnOnce() -> io::Result<TcpListener>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("worker")
            .enable_all()
            .build()
            .expect("a runtime can be built");
        let guard = runtime.enter();
        let listener = listen().expect("the worker can listen");
        let address = listener.local_addr().expect("a listener has an address");
        runtime.spawn(
            // `serve` would handle Ctrl-C, which has to end the tests.
            HttpServer::new(endpoint).serve_with_cancel(listener, std::future::pending::<()>()),
        );
        drop(guard);
        Self { address, runtime: Some(runtime) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL to register, without a slash at its end.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Drops the listener, all connections and all handlers, and returns the address.
    pub(crate) fn kill(mut self) -> SocketAddr {
        self.shut_down();
        self.address
    }

    fn shut_down(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        // A runtime cannot be dropped inside another one.
        let dropped = std::thread::spawn(move || drop(runtime)).join();
        if !std::thread::panicking() {
            dropped.expect("dropping a runtime does not panic");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// A listener whose connections send small writes immediately. The SDK's server does not set
/// `TCP_NODELAY`, but on Linux an accepted socket inherits it from the listener. Without it, each
/// step of 16 KiB or more waits 40 ms for the peer's delayed acknowledgement.
pub(crate) fn listen_with_nodelay(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_nodelay(true)?;
    // For a worker that takes over the port of a killed one.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}
