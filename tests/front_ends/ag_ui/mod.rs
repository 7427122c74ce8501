//! The AG-UI protocol.

pub(crate) mod grammar;
mod projection;
mod streams;
mod with_clients;
