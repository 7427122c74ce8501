//! The addresses that a worker and the front end need, as environment variables.

use std::env;
use std::net::SocketAddr;

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

/// The address to listen on.
pub(crate) fn listen_address() -> Result<SocketAddr, Error> {
    let address = required(LISTEN)?;
    address.parse().map_err(|_| {
        let message = format!("{LISTEN} needs an address and a port, not `{address}`");
        Error::new(ErrorKind::InvalidRequest, message)
    })
}

pub(crate) fn required(name: &str) -> Result<String, Error> {
    variable(name).ok_or_else(|| {
        Error::new(ErrorKind::InvalidRequest, format!("the variable {name} is not set"))
    })
}

pub(crate) fn io_error(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Other, format!("{what}: {error}")).with_source(error)
}
