//! The addresses that a worker and the front end need, as environment variables.

use std::env;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};
use turnstream::{Error, ErrorKind};

/// The variables. The last two are unset if the optional servers are missing.
pub(crate) const LISTEN: &str = "FLEET_LISTEN";
pub(crate) const RESTATE: &str = "FLEET_RESTATE";
pub(crate) const REDIS: &str = "FLEET_REDIS";
pub(crate) const POSTGRES: &str = "FLEET_POSTGRES";
/// The name of a process, for its output.
pub(crate) const NAME: &str = "FLEET_NAME";
/// Set for a process that ends when its standard input is closed.
pub(crate) const ENDS_WITH_INPUT: &str = "FLEET_ENDS_WITH_INPUT";

/// The value of a variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Listens on this process's address. The process that starts the others reserves the ports. All
/// workers of a machine share one port: Restate knows one URL for them, and the operating system
/// assigns each connection to a live worker. On several machines, a load balancer does this.
pub(crate) fn listen() -> Result<(TcpListener, SocketAddr), Error> {
    let address = required(LISTEN)?;
    let address: SocketAddr = address.parse().map_err(|_| {
        let message = format!("{LISTEN} needs an address and a port, not `{address}`");
        Error::new(ErrorKind::InvalidRequest, message)
    })?;
    let bind = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        // Same as in `Worker::listen`.
        socket.set_nodelay(true)?;
        socket.bind(address)?;
        socket.listen(1_024)
    };
    let listener =
        bind().map_err(|error| io_error(&format!("cannot listen on {address}"), error))?;
    Ok((listener, address))
}

pub(crate) fn required(name: &str) -> Result<String, Error> {
    variable(name).ok_or_else(|| {
        Error::new(ErrorKind::InvalidRequest, format!("the variable {name} is not set"))
    })
}

pub(crate) fn io_error(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Other, format!("{what}: {error}")).with_source(error)
}
